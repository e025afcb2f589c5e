"""A study: the experiments behind a table or a figure, each with its row and column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.edit import edit
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.result import Result, read_result
from iblurry.studies.paper import COUNTERPARTS
from iblurry.studies.scale import scaled

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
    datasets: tuple[str, ...]  # that the paper has it for, or we have; it runs on any other too
    rows: tuple[str, ...]  # in the paper's order
    columns: Callable[[str], Mapping[str, Changes]]  # of a data set, in order
    metrics: tuple[str, ...] = ("a_auc", "a_avg")  # of MEASURES; what a row does not have stays empty

    def planned(
        self,
        dataset: str,
        *,
        rows: Sequence[str] | None = None,
        only: Sequence[str] | None = None,
        seeds: Iterable[int] = SEEDS,
        scale: float = 1.0,
        data_home: Path | None = None,
        **changes: Any,
    ) -> list[Planned]:
        """Column by column, row by row, seed by seed; `changes` go to every experiment.

        `rows` and `only` keep some rows and columns. At a `scale` below 1 the stream has that share of the images, and
        memory and query_every shrink with it. Data of one's own are looked up for that, in `data_home`.
        """
        columns = self._columns(dataset, changes)
        if scale != 1:
            # The paper's methods too, so that one experiment has one memory in all studies.
            methods = [_experiment(row, dataset).method for row in {*self.rows, *COUNTERPARTS}]
            columns = scaled(columns, methods, dataset, scale, data_home)
        seeds = tuple(seeds)
        return [
            self.placed(
                Planned(row, column, _experiment(row, dataset, **columns[column] | {"seed": seed} | changes)), data_home
            )
            for column in self._kept("column", only, tuple(columns))
            for row in self._kept("row", rows, self.rows)
            for seed in seeds
        ]

    def placed(self, one: Planned, data_home: Path | None) -> Planned:
        """What stands in that place; for a study that does more with an experiment than change fields."""
        return one

    def _columns(self, dataset: str, changes: Changes) -> dict[str, dict[str, Any]]:
        columns = {name: dict(varied) for name, varied in self.columns(dataset).items()}
        varies = {field for varied in columns.values() for field in varied} - {"mode"}  # how a split is made, not which
        for field in varies & set(changes):
            raise InputError(f"The study {self.name} varies {field} itself; leave {field} out, or run another study.")
        return columns

    def _kept(self, kind: str, chosen: Sequence[str] | None, there: tuple[str, ...]) -> tuple[str, ...]:
        """Those chosen, in the study's order; all where nothing is chosen."""
        if not chosen:
            return there
        for name in chosen:
            if there == ("",):
                raise InputError(f"The study {self.name} varies nothing but the method; leave out the column {name!r}.")
            if name not in there:
                raise UnknownNameError(f"{kind} of the study {self.name}", name, there)
        return tuple(name for name in there if name in chosen)


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
                there[one] = read_result(folder, one.experiment)
                break
    return there
