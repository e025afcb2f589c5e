"""Worker processes of this machine: each runs a pack, and a pipe connects it to the job queue of its parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from iblurry.components import objects
from iblurry.data.images import default_workers
from iblurry.errors import IblurryError
from iblurry.launch.config import LaunchConfig
from iblurry.launch.job_queue import JobQueue, JobRequest, QueueClient
from iblurry.launch.pack import Pack
from iblurry.launch.processes import StopRequest, end_with_parent, stop_on_signals

GPUS = "CUDA_VISIBLE_DEVICES"


class Workers(ABC):
    """The parent's side: starts workers for a job queue, answers them, and stops them when asked.

    Parameters
    ----------
    queue : JobQueue
        Which jobs there are; a tolerant queue has lost workers replaced.
    config : LaunchConfig
        For the pack of each worker.
    stop : StopRequest
        Once it is set, workers are asked to save and leave.
    places : int
        How many workers at a time.
    """

    def __init__(self, queue: JobQueue, config: LaunchConfig, stop: StopRequest, *, places: int) -> None:
        self.queue, self.config, self.stop, self.places = queue, config, stop, places
        self.threads = max(job.hardware.threads or 1 for job in queue.jobs)
        self.workers: dict[Any, Any] = {}  # by what the queue knows them by

    def run(self) -> None:
        """Return when all jobs are done or saved; raise what made the queue give up."""
        queue = self.queue
        try:
            while self.workers or not queue.is_over:
                for _ in range(min(self.places - len(self.workers), queue.ready())):
                    self.start()
                self.listen()
                if (self.stop.is_set or queue.error) and not queue.is_closed:
                    queue.close()
                    self.ask_to_stop()
        finally:
            self.kill()  # those that an exception finds: their checkpoints make it safe
        if queue.error:
            raise queue.error

    @abstractmethod
    def start(self) -> None:
        """Start one worker."""

    @abstractmethod
    def listen(self) -> None:
        """Wait up to half a second for messages and answer them."""

    @abstractmethod
    def ask_to_stop(self) -> None:
        """Ask all workers to save and leave."""

    @abstractmethod
    def kill(self) -> None:
        """End all workers at once."""


class LocalWorkers(Workers):
    """Processes of this machine; they share nothing but their pipes, so a killed one never blocks the others.

    Parameters
    ----------
    gpus : sequence of str
        What $CUDA_VISIBLE_DEVICES calls the GPUs, dealt out to the workers one each; empty: all see all.
    """

    def __init__(
        self, queue: JobQueue, config: LaunchConfig, stop: StopRequest, *, places: int, gpus: Sequence[str] = ()
    ) -> None:
        super().__init__(queue, config, stop, places=places)
        queue.check_travel()
        self.workers: dict[Connection, BaseProcess] = {}
        self.place_of: dict[Connection, int] = {}
        self.gpus = gpus
        # Idle threads of the maths libraries would otherwise spin on the cores of the other workers.
        decoders = default_workers(runs=places)
        self.environment = {"OMP_NUM_THREADS": str(self.threads), "IBLURRY_DECODERS": str(decoders)}

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")  # torch does not survive a fork
        resource_tracker.ensure_running()  # started by a process, it would inherit the blocked SIGINT
        place = min(set(range(self.places)) - set(self.place_of.values()))
        visible = {GPUS: self.gpus[place % len(self.gpus)]} if self.gpus else {}
        with _environment(**self.environment, **visible), _blocked_sigint():
            here, there = context.Pipe()
            arguments = (there, self.config, self.queue.tolerant, self.queue.objects())
            process = context.Process(target=_work, args=arguments)  # no daemon: its runs may start decoders
            process.start()
            there.close()  # so that the pipe ends when the worker does
        self.workers[here], self.place_of[here] = process, place

    def listen(self) -> None:
        for pipe in wait(list(self.workers), timeout=0.1):
            assert isinstance(pipe, Connection)
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                self._bury(pipe)
                continue
            if isinstance(message, JobRequest):
                with suppress(ConnectionError):  # it has ended meanwhile, which the pipe will tell next
                    pipe.send(self.queue.take(pipe))
            else:
                self.queue.report(message, pipe)

    def ask_to_stop(self) -> None:
        for process in self.workers.values():
            process.terminate()  # SIGTERM, which a worker takes as a request

    def kill(self) -> None:
        for process in self.workers.values():
            process.kill()
            process.join()

    def _bury(self, pipe: Connection) -> None:
        process = self.workers.pop(pipe)
        del self.place_of[pipe]
        pipe.close()
        process.join()
        code = process.exitcode or 0
        killed = f"was killed by {signal.Signals(-code).name}, often for lack of memory" if code < 0 else ""
        self.queue.lose(pipe, killed or (f"ended with code {code}" if code else ""))


def _work(pipe: Connection, config: LaunchConfig, tolerant: bool, brought: dict[str, Any]) -> None:
    """The life of a worker process."""
    objects.receive(brought)
    end_with_parent()  # the checkpoints make it safe
    with stop_on_signals(repeatedly=True) as stop, suppress(IblurryError):  # errors were reported already
        Pack(config, QueueClient(pipe.send, pipe.recv, tolerant=tolerant), stop).run()


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Environment variables for processes started inside."""
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
def _blocked_sigint() -> Iterator[None]:
    """Processes started inside never get SIGINT, which a terminal sends to all: the parent asks them to stop."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # one that came meanwhile is delivered now
