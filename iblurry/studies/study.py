"""A study: the experiments behind a table or a figure, each with its row and column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iblurry.errors import UnknownNameError
from iblurry.experiment.edit import edit
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.run import Result, result

SEEDS = (1, 2, 3)  # as many as the paper has
Changes = Mapping[str, Any]  # fields of an experiment


@dataclass(frozen=True)
class Planned:
    """An experiment and its place."""

    row: str  # a method as `iblurry run` and --set write it: "clib", "ewc schedule=Constant"
    column: str  # what is varied: "N=50"; "" where nothing is
    experiment: Experiment


@dataclass(frozen=True, kw_only=True)
class Study:
    """Rows are methods, columns are settings; a cell is a metric's mean over seeds."""

    name: str  # on the command line
    title: str
    shows: tuple[str, ...]  # of the paper: "Table 1"; () for a study of our own
    question: str  # that it answers, in a sentence
    datasets: tuple[str, ...]  # that the paper has it for
    rows: tuple[str, ...]  # in the paper's order
    columns: Callable[[str], Mapping[str, Changes]]  # of a data set, in order
    metrics: tuple[str, ...] = ("a_auc", "a_avg")  # fields of Metrics

    def planned(
        self, dataset: str, *, rows: Sequence[str] | None = None, seeds: Iterable[int] = SEEDS, **changes: Any
    ) -> list[Planned]:
        """Column by column, row by row, seed by seed; `changes` go to every experiment."""
        for row in rows or ():
            if row not in self.rows:
                raise UnknownNameError(f"row of the study {self.name}", row, self.rows)
        return [
            Planned(row, column, _experiment(row, dataset, seed=seed, **varied | changes))
            for column, varied in ({name: dict(given) for name, given in self.columns(dataset).items()}).items()
            for row in (rows or self.rows)
            for seed in seeds
        ]


def _experiment(row: str, dataset: str, **changes: Any) -> Experiment:
    method, *edits = row.split()
    one = Experiment.of(method, dataset, **changes)
    for change in edits:
        one = edit(one, change)
    return one


def found(planned: Sequence[Planned], places: Sequence[Path]) -> dict[Planned, Result]:
    """The finished runs among them, from the first of the places (folders of runs) that has each."""
    there: dict[Planned, Result] = {}
    for one in planned:
        for place in places:
            folder = RunFolder(place / one.experiment.name)
            if folder.summary() is not None:
                there[one] = result(folder, one.experiment)
                break
    return there
