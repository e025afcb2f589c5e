"""A worker on another machine: it has a line of two queues, and a folder of its own where the parent's is not seen."""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.interrupt import Stop
from iblurry.files import write_file
from iblurry.launch.job_queue import LATER, Given
from iblurry.launch.task import Runner, Task
from iblurry.launch.worker import Reported, Reporter, work

Files = dict[str, bytes]  # of a run's folder, by their names
Marks = dict[str, tuple[int, int]]  # of files: when they were written, and their sizes
Message = tuple[str, int, tuple[Any, ...]]
WAIT = 0.3  # seconds that the parent is kept waiting for news
LOCAL = ("lock",)  # files that mean nothing elsewhere


class Remote:
    """Works in a thread of its own while the parent comes to talk; to be wrapped as an actor."""

    def __init__(self, runner: Runner, size: int, token: str) -> None:
        """`token` is the name of a file in the parent's folder: who sees it shares that folder."""
        self.news: queue.Queue[Message] = queue.Queue()
        self.answers: queue.Queue[Given | str | None] = queue.Queue()
        self.stop = Stop()
        if (runner.out / token).exists():
            feed = Reported(self, runner, tolerant=True)
        else:
            own = Path(tempfile.mkdtemp(prefix="iblurry-"))
            feed = Carried(self, Runner(own, runner.data_home, runner.save, patience=0.0))
        self.thread = threading.Thread(target=work, args=(feed,), kwargs={"size": size, "stop": self.stop}, daemon=True)
        self.thread.start()

    def talk(self, answers: list[Any]) -> tuple[list[Message], bool]:
        """Takes answers; gives what was said since, and whether there is more to come."""
        for answer in answers:
            self.answers.put(answer)
        alive, news = self.thread.is_alive(), []
        try:
            news.append(self.news.get(timeout=WAIT))
            while True:
                news.append(self.news.get_nowait())
        except queue.Empty:
            return news, alive or bool(news)

    def ask_to_stop(self) -> None:
        """Politely: what is under way is saved."""
        self.stop.asked = True

    def send(self, message: Message) -> None:
        self.news.put(message)

    def recv(self) -> Any:
        return self.answers.get()


class Carried(Reported):
    """Where the parent's folder cannot be seen: a run's files come from there and go back with every checkpoint."""

    def __init__(self, line: Any, runner: Runner) -> None:
        super().__init__(line, runner, tolerant=True)
        self.carried: dict[str, Marks] = {}  # what the parent has, by the run's name

    def _task(self, number: int, experiment: Experiment, where: Hardware) -> Task | None:
        self.tell("fetch", number)
        files: Any = self.line.recv()
        if files == LATER:  # in another program's hands
            self.tell("busy", number)
            return None
        folder = self.runner.out / experiment.name
        put(folder, files)
        self.carried[experiment.name] = _marks(folder)
        task = super()._task(number, experiment, where)
        assert task is not None
        return task._replace(watcher=_Carrying(self, number, lambda: self.carry(task)))

    def carry(self, task: Task, *, whole: bool = False) -> None:
        """Takes home what is new, once there is a new checkpoint; or at an end, the `whole` of it."""
        name = task.experiment.name
        folder, before = self.runner.out / name, self.carried[name]
        there = _marks(folder)
        if whole or any(file not in before for file in there if file.startswith("checkpoint")):
            new = {file: (folder / file).read_bytes() for file, mark in there.items() if before.get(file) != mark}
            self.tell("home", self.numbers[name], new, [file for file in before if file not in there])
            self.carried[name] = there

    def done(self, task: Task) -> None:
        self.carry(task, whole=True)
        super().done(task)

    def failed(self, task: Task, error: Exception) -> bool:
        goes_on = super().failed(task, error)
        if (self.runner.out / task.experiment.name).exists():
            self.carry(task, whole=True)
        return goes_on


class _Carrying(Reporter):
    """Between two samples, in the thread that writes the files: none of them is half a one."""

    def __init__(self, feed: Carried, number: int, carry: Callable[[], None]) -> None:
        super().__init__(feed, number)
        self.carry = carry

    def move(self, at: int, accuracy: float | None, rate: float) -> None:
        self.carry()
        super().move(at, accuracy, rate)


def files_of(folder: Path) -> Files:
    """All that makes up a run."""
    return {name: (folder / name).read_bytes() for name in _marks(folder)}


def put(folder: Path, files: Files, gone: Sequence[str] = ()) -> None:
    """Files into a folder, the summary last: with it a run is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == "summary.json"):
        write_file(folder / name, files[name])
    for name in gone:
        (folder / name).unlink(missing_ok=True)


def _marks(folder: Path) -> Marks:
    files = [path for path in sorted(folder.glob("*")) if path.name not in LOCAL and path.suffix != ".tmp"]
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}
