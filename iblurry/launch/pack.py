"""The pack: several runs side by side in this process, a sample each in turn."""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack, closing, nullcontext

import torch

from iblurry.data.dataset import Dataset
from iblurry.data.prefetch import default_workers
from iblurry.experiment.environment import thread_count
from iblurry.experiment.interrupt import Stop, stopping_politely
from iblurry.experiment.run_loop import open_run
from iblurry.launch.task import Feed, Runner, Task

PAUSE = 0.1  # seconds, while there is nothing to do but perhaps later


class Pack:
    """Up to `size` runs at a time; when one is done, the next takes its place.

    Each comes out as it does alone, bit for bit. On a GPU each has a lane of its own, so that the device computes for
    one while the host prepares another. A refit (gdumb, rm, joint) belongs to a single sample: the others wait for it.

    The feed says whether one that fails stops the others: politely, as a signal does, so what they have done is saved.
    """

    def __init__(self, feed: Feed, runner: Runner, size: int, *, stop: Stop | None = None) -> None:
        """`stop` is that of somebody else, where signals do not come."""
        self.feed, self.runner, self.size = feed, runner, size
        self.decoders = default_workers(runs=size)
        self.abreast: list[_Member] = []
        self.failed: Exception | None = None
        self.stop, self.hears_signals = stop or Stop(), stop is None

    def go(self) -> None:
        asking = stopping_politely() if self.hears_signals else nullcontext(self.stop)
        with asking as self.stop, thread_count(torch.get_num_threads()), ExitStack() as blow:
            blow.callback(self._leave)
            self._fill()
            while self.abreast or not (self.stops() or self.feed.is_over()):
                if not self.abreast:
                    time.sleep(PAUSE)
                self.abreast = [member for member in self.abreast if self._step(member)]
                self._fill()
        if self.failed is not None:
            raise self.failed

    def stops(self) -> bool:
        return self.stop.asked or self.failed is not None

    def _fill(self) -> None:
        """New runs in the places of those that are done."""
        while len(self.abreast) < self.size and not self.stops() and (task := self.feed.take()) is not None:
            gc.collect()  # learners hold themselves: one that is done would keep its part of the device's memory
            try:
                self.abreast.append(_Member(task, self))
            except Exception as error:
                self._fail(task, error)

    def _step(self, member: _Member) -> bool:
        """Whether it goes on."""
        try:
            if member.step():
                return True
        except Exception as error:
            member.close()
            self._fail(member.task, error)
            return False
        member.close()
        self.feed.done(member.task)
        return False

    def _fail(self, task: Task, error: Exception) -> None:
        if not self.feed.failed(task, error):
            self.failed = self.failed or error

    def _leave(self) -> None:
        """All at once, which only a blow (a second Ctrl-C) finds still there: their checkpoints make it safe."""
        for member in self.abreast:
            member.close()

    def data(self, spec: str) -> Dataset:
        """That of a run beside it, where it is the same."""
        beside = (member.walk.dataset for member in self.abreast if member.walk is not None and member.spec == spec)
        return next(beside, None) or self.runner.data(spec)


class _Member:
    """One run of the pack."""

    def __init__(self, task: Task, pack: Pack) -> None:
        self.task, self.spec = task, task.experiment.dataset
        run = open_run(
            task.experiment,
            pack.runner.out,
            data=lambda: pack.data(self.spec),
            watcher=task.watcher,
            often=pack.runner.save,
            where=task.where,
            decoders=pack.decoders,
            patience=pack.runner.patience,
        )
        with ExitStack() as opening:
            self.walk = opening.enter_context(run)
            if self.walk is not None:
                self.steps = opening.enter_context(closing(self.walk.steps(pack.stops)))
            self._opened = opening.pop_all()

    def step(self) -> bool:
        """One sample, with the threads and in the lane it has alone; False when there is no more to do."""
        if self.walk is None:
            return False
        if torch.get_num_threads() != self.walk.threads:
            torch.set_num_threads(self.walk.threads)
        with self.walk.engine.cuda_stream():
            return next(self.steps, None) is not None

    def close(self) -> None:
        self._opened.close()
