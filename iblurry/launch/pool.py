"""The pool: worker processes of this machine, and a parent that listens to them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from iblurry.data.prefetch import default_workers
from iblurry.errors import StoppedError
from iblurry.experiment.interrupt import stopping_politely
from iblurry.launch.job_queue import Desk
from iblurry.launch.task import Runner, Task
from iblurry.launch.worker import Reported, leave_with, work

GPUS = "CUDA_VISIBLE_DEVICES"


class Pool:
    """The parent's side: hands out experiments, shows what the workers report, waits for them to leave.

    A pipe for each worker and nothing shared: one that is killed at any moment holds up nobody else. `size` is how many
    runs a worker has side by side, `gpus` what each worker sees of them; `tolerant` is the desk's.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        runner: Runner,
        jobs: int,
        *,
        size: int = 1,
        gpus: Sequence[str] = (),
        tolerant: bool = False,
    ) -> None:
        self.runner, self.jobs, self.size, self.gpus = runner, jobs, size, gpus
        self.desk = Desk(tasks, tolerant=tolerant)
        self.workers: dict[Connection, BaseProcess] = {}
        self.places: dict[Connection, int] = {}  # which of the jobs a worker does
        threads = max(task.where.threads or 1 for task in tasks)
        decoders = default_workers(runs=jobs)
        self.environment = {"OMP_NUM_THREADS": str(threads), "IBLURRY_DECODERS": str(decoders)}

    def go(self) -> None:
        desk = self.desk
        with stopping_politely() as stop:
            told = False
            try:
                while self.workers or not told:
                    if not told and self._needs_more():
                        self._start()
                    if not self.workers:
                        break
                    for pipe in wait(list(self.workers), timeout=0.1):
                        self._hear(pipe)  # type: ignore[arg-type]
                    if (stop.asked or desk.failed) and not told:
                        told = True
                        desk.clear()
                        for worker in self.workers.values():
                            worker.terminate()  # a worker takes it as a question
            except BaseException:
                for worker in self.workers.values():
                    worker.kill()  # their checkpoints make it as safe as any end
                    worker.join()
                raise
        if desk.failed:
            raise desk.failed
        if desk.lost and not stop.asked:
            raise StoppedError(f"{' '.join(desk.lost)} What was saved is kept, and the same command continues.")

    def _needs_more(self) -> bool:
        """At the beginning, and where a tolerant desk has runs for the places of workers that were lost."""
        desk, begins = self.desk, not (self.workers or self.desk.losses)
        return bool((desk.waiting and (begins or desk.tolerant)) or (desk.away and not self.workers))

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # torch and fork do not go together
        resource_tracker.ensure_running()  # its own start would undo the deafness to Ctrl-C
        for place in sorted(set(range(self.jobs)) - set(self.places.values())):
            seen = {GPUS: self.gpus[place % len(self.gpus)]} if self.gpus else {}
            with _environment(**self.environment, **seen), _deaf_to_ctrl_c():
                mine, theirs = context.Pipe()
                args = (theirs, self.runner, os.getpid(), self.size, self.desk.tolerant)
                worker = context.Process(target=_work, args=args, daemon=True)
                worker.start()
                theirs.close()  # now its end is the end of the pipe
            self.workers[mine], self.places[mine] = worker, place

    def _hear(self, pipe: Connection) -> None:
        try:
            verb, number, words = pipe.recv()
        except (EOFError, OSError):
            self._bury(pipe)
            return
        if verb == "next":
            with suppress(ConnectionError):  # it has gone meanwhile: the next thing heard of it is that
                pipe.send(self.desk.take(pipe))
        else:
            self.desk.hear(pipe, verb, number, words)

    def _bury(self, pipe: Connection) -> None:
        worker = self.workers.pop(pipe)
        del self.places[pipe]
        pipe.close()
        worker.join()
        code = worker.exitcode or 0
        killed = f"was killed by {signal.Signals(-code).name}, often for lack of memory" if code < 0 else ""
        self.desk.bury(pipe, killed or (f"ended with code {code}" if code else ""))


def _work(pipe: Connection, runner: Runner, parent: int, size: int, tolerant: bool) -> None:
    leave_with(parent)
    work(Reported(pipe, runner, tolerant=tolerant), size=size)


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
