"""A worker's life: the next run until there is none, someone asks to stop, or the parent is gone."""

from __future__ import annotations

import os
import threading
import time
import traceback
from typing import Any, Protocol

from iblurry.errors import BusyError, IblurryError, StoppedError
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.interrupt import Stop, stopping_politely
from iblurry.files import write_file
from iblurry.launch.job_queue import LATER, Given
from iblurry.launch.pack import Pack
from iblurry.launch.task import Runner, Task

ASK_AGAIN = 0.5  # seconds after there was nothing to do yet
FAILURE = "failure.txt"  # in a run's folder: what nobody had foreseen


class Line(Protocol):
    """To the parent and back; ConnectionError or EOFError once it is gone."""

    def send(self, message: tuple[str, int, tuple[Any, ...]]) -> None: ...
    def recv(self) -> Given | str | None: ...


def work(feed: Reported, *, size: int = 1, stop: Stop | None = None) -> None:
    """Up to `size` runs side by side; `stop` is somebody's who asks in another way than by a signal."""
    with stopping_politely(patient=True):  # a group's signal and the parent's may both come
        try:
            Pack(feed, feed.runner, size, stop=stop).go()
        except IblurryError:
            return  # as told


class Reported:
    """The feed of a worker: asks the parent, and tells it. Unless `tolerant`, the first failure ends it."""

    def __init__(self, line: Line, runner: Runner, *, tolerant: bool = False) -> None:
        self.line, self.runner, self.tolerant = line, runner, tolerant
        self.numbers: dict[str, int] = {}  # of runs, by their names
        self.asks_at, self.is_last = 0.0, False

    def take(self) -> Task | None:
        if self.is_last or time.monotonic() < self.asks_at:
            return None
        self.tell("next", -1)
        try:
            given = self.line.recv()
        except (EOFError, ConnectionError) as error:
            raise SystemExit(1) from error
        if isinstance(given, tuple):
            return self._task(*given)
        self.is_last, self.asks_at = given is None, time.monotonic() + ASK_AGAIN
        assert given in (None, LATER)
        return None

    def _task(self, number: int, experiment: Experiment, where: Hardware) -> Task | None:
        self.numbers[experiment.name] = number
        return Task(experiment, where, Reporter(self, number))

    def is_over(self) -> bool:
        return self.is_last

    def done(self, task: Task) -> None:
        self.tell("done", self.numbers[task.experiment.name])

    def failed(self, task: Task, error: Exception) -> bool:
        number = self.numbers[task.experiment.name]
        if self.tolerant and isinstance(error, BusyError):
            self.tell("busy", number)
        elif isinstance(error, IblurryError):
            self.tell("fail", number, error)
        elif self.tolerant:
            self.tell("fail", number, self._unforeseen(task, error))
        return self.tolerant

    def _unforeseen(self, task: Task, error: Exception) -> StoppedError:
        path = self.runner.out / task.experiment.name / FAILURE
        write_file(path, "".join(traceback.format_exception(error)).encode())
        return StoppedError(f"{type(error).__name__}: {error} (see {path}). Its last checkpoint is kept.")

    def tell(self, verb: str, number: int, *words: Any) -> None:
        try:
            self.line.send((verb, number, words))
        except ConnectionError as error:
            raise SystemExit(1) from error  # the parent is gone: nobody is left to report to


class Reporter:
    """A run's watcher in a worker: tells the parent."""

    def __init__(self, feed: Reported, number: int) -> None:
        self.feed, self.number = feed, number

    def begin(self, name: str, at: int, samples: int) -> None:
        self.feed.tell("begin", self.number, name, at, samples)

    def move(self, at: int, accuracy: float | None, rate: float) -> None:
        self.feed.tell("move", self.number, at, accuracy, rate)

    def refit(self, done: int, updates: int) -> None:
        self.feed.tell("refit", self.number, done, updates)

    def say(self, sentence: str) -> None:
        self.feed.tell("say", self.number, sentence)


def leave_with(parent: int) -> None:
    """In a thread of its own: nobody is left to report to once the parent was killed; checkpoints make it safe."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.3)
    os._exit(1)
