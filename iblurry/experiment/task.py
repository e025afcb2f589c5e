"""One run still to be done, and who does such runs one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.experiment.environment import Where
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.progress import Watcher
from iblurry.experiment.run import Often, run


class Task(NamedTuple):
    """One run still to be done or continued."""

    experiment: Experiment
    where: Where
    watcher: Watcher


class Runner:
    """Runs one task after the other, and loads their data only once where it is the same."""

    def __init__(self, out: Path, data_home: Path | None, save: Often) -> None:
        self.out, self.data_home, self.save = out, data_home, save
        self._loaded: tuple[str, Dataset] | None = None

    def run(self, task: Task) -> None:
        data = self.data(task.experiment.dataset)
        run(task.experiment, self.out, dataset=data, watcher=task.watcher, save=self.save, where=task.where)

    def data(self, spec: str) -> Dataset:
        """The same as the last time, where that is what is asked for."""
        if self._loaded is None or self._loaded[0] != spec:
            self._loaded = spec, load(spec, self.data_home)
        return self._loaded[1]
