"""The pool: worker processes that take the next experiment when they are done, and a parent that listens to them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from iblurry.data.decoders import usual_workers
from iblurry.errors import IblurryError, StoppedError
from iblurry.experiment.environment import Where
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.interrupt import stopping_politely
from iblurry.experiment.task import Runner, Task


class Pool:
    """The parent's side: hands out experiments, shows what the workers report, waits for them to leave.

    A pipe for each worker and nothing shared: one that is killed at any moment holds up nobody else.
    """

    def __init__(self, tasks: Sequence[Task], runner: Runner, jobs: int) -> None:
        self.tasks, self.runner, self.jobs = tasks, runner, jobs
        self.waiting = list(range(len(tasks)))
        self.workers: dict[Connection, BaseProcess] = {}
        self.at_work: dict[Connection, int] = {}  # number of the task
        self.failed: IblurryError | None = None
        self.lost: list[str] = []

    def go(self) -> None:
        with stopping_politely() as stop:
            told = False
            try:
                self._start()
                while self.workers:
                    for pipe in wait(list(self.workers), timeout=0.1):
                        self._hear(pipe)  # type: ignore[arg-type]
                    if (stop.asked or self.failed) and not told:
                        told = True
                        self.waiting = []
                        for worker in self.workers.values():
                            worker.terminate()  # a worker takes it as a question
            except BaseException:
                for worker in self.workers.values():
                    worker.kill()  # their checkpoints make it as safe as any end
                    worker.join()
                raise
        if self.failed:
            raise self.failed
        if self.lost and not stop.asked:
            raise StoppedError(f"{' '.join(self.lost)} What was saved is kept, and the same command continues.")

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # torch and fork do not go together
        resource_tracker.ensure_running()  # its own start would undo the deafness to Ctrl-C
        threads = max(task.where.threads or 1 for task in self.tasks)
        decoders = usual_workers(runs=self.jobs)
        with _environment(OMP_NUM_THREADS=str(threads), IBLURRY_DECODERS=str(decoders)), _deaf_to_ctrl_c():
            for _ in range(self.jobs):
                mine, theirs = context.Pipe()
                worker = context.Process(target=_work, args=(theirs, self.runner, os.getpid()), daemon=True)
                worker.start()
                theirs.close()  # now its end is the end of the pipe
                self.workers[mine] = worker

    def _hear(self, pipe: Connection) -> None:
        try:
            verb, words = pipe.recv()
        except (EOFError, OSError):
            self._bury(pipe)
            return
        if verb == "next":
            self._hand_out(pipe)
        elif verb == "fail":
            self.failed = self.failed or words[0]
        else:
            getattr(self.tasks[self.at_work[pipe]].watcher, verb)(*words)

    def _hand_out(self, pipe: Connection) -> None:
        self.at_work.pop(pipe, None)
        message = None
        if self.waiting:
            self.at_work[pipe] = self.waiting.pop(0)
            task = self.tasks[self.at_work[pipe]]
            message = (task.experiment, task.where)
        with suppress(ConnectionError):  # it has gone meanwhile: the next thing heard of it is that
            pipe.send(message)

    def _bury(self, pipe: Connection) -> None:
        worker = self.workers.pop(pipe)
        pipe.close()
        worker.join()
        code, number = worker.exitcode or 0, self.at_work.pop(pipe, None)
        if code:
            what = "A worker" if number is None else f"The worker of {self.tasks[number].experiment.name}"
            killed = f"was killed by {signal.Signals(-code).name}, often for lack of memory" if code < 0 else ""
            self.lost.append(f"{what} {killed or f'ended with code {code}'}.")


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """What workers find when they start: idle threads of the maths libraries would otherwise spin on their cores."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started inside never hear SIGINT, which a terminal sends to all: the parent tells them to stop."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # one that came meanwhile is heard now


def _work(pipe: Connection, runner: Runner, parent: int) -> None:
    """A worker's whole life: the next experiment until there is none, someone asks to stop, or the parent is gone."""
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    reporter = _Reporter(pipe)
    with stopping_politely(patient=True) as stop:  # a group's signal and the parent's may both come
        while not stop.asked and (given := reporter.next()) is not None:
            try:
                runner.run(Task(*given, reporter))
            except IblurryError as error:
                reporter.tell("fail", error)
                return


class _Reporter:
    """A worker's watcher: tells the parent."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def next(self) -> tuple[Experiment, Where] | None:
        """The next experiment and what to run it on, or None when there is no more to do."""
        self.tell("next")
        try:
            given: tuple[Experiment, Where] | None = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise SystemExit(1) from error
        return given

    def tell(self, verb: str, *words: Any) -> None:
        try:
            self.pipe.send((verb, words))
        except ConnectionError as error:
            raise SystemExit(1) from error  # the parent is gone: nobody is left to report to

    def begin(self, name: str, at: int, samples: int) -> None:
        self.tell("begin", name, at, samples)

    def move(self, at: int, accuracy: float | None, rate: float) -> None:
        self.tell("move", at, accuracy, rate)

    def refit(self, done: int, updates: int) -> None:
        self.tell("refit", done, updates)

    def say(self, sentence: str) -> None:
        self.tell("say", sentence)


def _leave_with(parent: int) -> None:
    """Nobody is left to report to once the parent was killed; checkpoints make this as safe as any end."""
    while os.getppid() == parent:
        time.sleep(0.3)
    os._exit(1)
