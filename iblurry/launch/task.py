"""One run still to be done, who hands out such runs, and what they need to be run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.experiment.callback import Callback
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.run import CheckpointPolicy, run


class Task(NamedTuple):
    """One run still to be done or continued."""

    experiment: Experiment
    where: Hardware
    watcher: Callback


class Feed(Protocol):
    """Who hands out tasks and hears what became of them."""

    def take(self) -> Task | None:
        """The next to begin; None: there is none now."""

    def is_over(self) -> bool:
        """Whether there will be none later either."""

    def done(self, task: Task) -> None:
        """It came to its end, or was asked to stop and has saved."""

    def failed(self, task: Task, error: Exception) -> bool:
        """Whether the others go on; if not, they stop politely and the error is raised."""


class Listed:
    """From a list, in its order; one that fails stops the others."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.waiting = deque(tasks)

    def take(self) -> Task | None:
        return self.waiting.popleft() if self.waiting else None

    def is_over(self) -> bool:
        return not self.waiting

    def done(self, task: Task) -> None:
        """Nobody needs to know."""

    def failed(self, task: Task, error: Exception) -> bool:
        return False


class Runner:
    """Runs one task after the other, and loads their data only once where it is the same."""

    def __init__(
        self, out: Path, data_home: Path | None, save: CheckpointPolicy, *, patience: float | None = None
    ) -> None:
        self.out, self.data_home, self.save, self.patience = out, data_home, save, patience
        self._loaded: tuple[str, Dataset] | None = None

    def run(self, task: Task) -> None:
        data = self.data(task.experiment.dataset)
        run(task.experiment, self.out, dataset=data, watcher=task.watcher, save=self.save, where=task.where)

    def data(self, spec: str) -> Dataset:
        """The same as the last time, where that is what is asked for."""
        if self._loaded is None or self._loaded[0] != spec:
            self._loaded = spec, load(spec, self.data_home)
        return self._loaded[1]
