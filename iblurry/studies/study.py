"""A study: the experiments behind a table or a figure, each with its row and column."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iblurry.components.edit import edit
from iblurry.data.load import load
from iblurry.errors import IblurryError, InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment, canonical
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.result import Result, read_result
from iblurry.experiment.settings import setting
from iblurry.methods.method import Method
from iblurry.studies.paper import COUNTERPARTS

METHODS = ("ewc", "bic", "mir", "gdumb", "rm", "er", "clib")  # in the order of the paper's tables
SEEDS = (1, 2, 3)  # as many as the paper has
ROWS_PER_CLASS = 2  # of memory that a class has at least, at any scale
CLASSES = {  # so that a study can be planned without the data
    "digits": 10,
    "fashion_mnist": 10,
    "cifar10": 10,
    "cifar100": 100,
    "tinyimagenet": 200,
    "imagenet": 1000,
}
Changes = Mapping[str, Any]  # fields of an experiment


@dataclass(frozen=True)
class PlannedRun:
    """An experiment and its place in the study's table."""

    row: str  # a method as `iblurry run` and --set write it: "clib", "ewc schedule=Constant"
    column: str  # what is varied: "N=50"; "" where nothing is
    experiment: Experiment


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table of experiments: rows are methods, columns are settings, a cell is a metric's mean over seeds.

    `columns` gives, for a data set, the changed fields of the experiments by the column's name, in order; by default
    one column "" of the data set's usual setting, so that only the methods differ.
    """

    name: str  # on the command line
    title: str  # heading of its table and figures
    question: str  # what it answers, in a sentence
    shows: tuple[str, ...] = ()  # tables and figures of the paper that it repeats, such as "Table 1"
    datasets: tuple[str, ...] = ("cifar10",)  # made for; the first is the default of `table` and `figure`
    rows: tuple[str, ...] = METHODS  # in the paper's order, written as for `iblurry run` and --set
    once: tuple[str, ...] = ()  # rows that are run with the first seed only
    columns: Callable[[str], Mapping[str, Changes]] = lambda dataset: {"": {}}
    metrics: tuple[str, ...] = ("a_auc", "a_avg")  # names of TABLE_METRICS; what a row does not have stays empty

    def plan(
        self,
        dataset: str,
        *,
        rows: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        seeds: Iterable[int] = SEEDS,
        scale: float = 1.0,
        data_home: Path | None = None,
        **changes: Any,
    ) -> list[PlannedRun]:
        """The experiments on a data set: column by column, row by row, seed by seed.

        `rows` and `columns` keep only these; `scale` is the share of the images, with which memory and query_every
        shrink; `changes` are fields of every experiment. Data of one's own are opened if the scale is below 1.
        """
        varied = self._varied(dataset, changes)
        if scale != 1:
            # The paper's methods too, so that one experiment has one memory in all studies.
            methods = [_experiment(row, dataset).method for row in {*self.rows, *COUNTERPARTS}]
            varied = scale_columns(varied, methods, dataset, scale, data_home)
        seeds = tuple(seeds)
        return [
            self.adjust(
                PlannedRun(row, column, _experiment(row, dataset, **varied[column] | {"seed": seed} | changes)),
                data_home,
            )
            for column in self._keep("column", columns, tuple(varied))
            for row in self._keep("row", rows, self.rows)
            for seed in self.seeds_of(row, seeds)
            if self.has(row, column)
        ]

    def has(self, row: str, column: str) -> bool:
        """Whether the table has this cell."""
        return True

    def seeds_of(self, row: str, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """The seeds, of those given, that a row is run with."""
        return seeds[:1] if row in self.once else seeds

    def adjust(self, planned: PlannedRun, data_home: Path | None) -> PlannedRun:
        """The run to plan instead; overridden by a study that does more to an experiment than change fields."""
        return planned

    def _varied(self, dataset: str, changes: Changes) -> dict[str, dict[str, Any]]:
        columns = {name: dict(fields) for name, fields in self.columns(dataset).items()}
        varies = {field for fields in columns.values() for field in fields} - {"mode"}  # how a split is made, not which
        for field in varies & set(changes):
            raise InputError(f"The study {self.name} varies {field} itself; leave {field} out, or run another study.")
        return columns

    def _keep(self, kind: str, chosen: Sequence[str] | None, names: tuple[str, ...]) -> tuple[str, ...]:
        """The names that were chosen, in the study's order; all where none was."""
        if not chosen:
            return names
        for name in chosen:
            if names == ("",):
                raise InputError(f"The study {self.name} varies only the method; leave out the column {name!r}.")
            if name not in names:
                raise UnknownNameError(f"{kind} of the study {self.name}", name, names)
        return tuple(name for name in names if name in chosen)


def _experiment(row: str, dataset: str, **changes: Any) -> Experiment:
    method, *edits = row.split()
    return edit(Experiment.of(method, dataset, **changes), *edits)


def find_finished(planned: Sequence[PlannedRun], folders: Sequence[Path]) -> dict[PlannedRun, Result]:
    """The finished runs among those planned, each from the first of `folders` (which hold run folders) that has it."""
    found: dict[PlannedRun, Result] = {}
    for run in planned:
        for folder in folders:
            place = RunFolder(folder / run.experiment.name)
            if place.summary() is not None:
                found[run] = read_result(place, run.experiment)
                break
    _check_same_data(found)
    return found


def find_other_orders(
    cells: Mapping[tuple[str, str], Sequence[PlannedRun]], folders: Iterable[Path]
) -> dict[tuple[str, str], dict[int, Result]]:
    """Finished runs of cells that are the planned ones but for their orders, such as the paper's own, by cell and seed.

    All runs of a cell are on the same orders: those on which most seeds are finished. A stream with other numbers of
    tasks, N or M is another setup, not another order.

    Parameters
    ----------
    cells : mapping
        By row and column, what was planned there.
    folders : iterable of Path
        Folders of runs; the first that has a run counts.
    """
    found = {}
    places = dict.fromkeys(folder.resolve() for folder in folders)
    for cell, group in cells.items():
        orders: dict[str, dict[int, RunFolder]] = {}
        for wanted in (planned.experiment for planned in group):
            pattern = f"{wanted.name.removesuffix(wanted.digest)}*/summary.json"
            for run in (RunFolder(path.parent) for place in places for path in sorted(place.glob(pattern))):
                with suppress(IblurryError):  # parts of somebody's own that were not imported: not this experiment
                    there, numbers = run.experiment(), ("tasks", "disjoint", "blur")
                    is_same = all(getattr(there.stream, n, None) == getattr(wanted.stream, n, None) for n in numbers)
                    if is_same and replace(there, stream=wanted.stream).digest == wanted.digest:
                        alike = canonical(
                            there.stream.identity_json() | {"data": (run.environment() or {}).get("data")}
                        )
                        orders.setdefault(alike, {}).setdefault(wanted.seed, run)
        if orders:
            found[cell] = {seed: read_result(run) for seed, run in max(orders.values(), key=len).items()}
    return found


def _check_same_data(found: dict[PlannedRun, Result]) -> None:
    """InputError if seeds of one cell were run on different data: their mean would be of nothing."""
    firsts: dict[tuple[str, str], Result] = {}
    for run, result in found.items():
        first = firsts.setdefault((run.row, run.column), result)
        if first.environment.get("data") != result.environment.get("data"):
            raise InputError(
                f"{first.folder} and {result.folder} were run on different data, though both say "
                f"{run.experiment.dataset!r}; run one of them again with --again, or use separate folders."
            )


def scale_columns(
    columns: Mapping[str, Changes],
    methods: Sequence[Method],
    dataset: str,
    scale: float,
    data_home: Path | None = None,
) -> dict[str, dict[str, Any]]:
    """The columns with that share of the images, and of the memory and of the samples between two queries.

    The memory is the same for all methods. Where the scaled memory were too little for one of them, the memories of
    all columns shrink less, so that they keep their proportions; none grows.
    """
    if not 0 < scale <= 1:
        raise InputError(f"scale={scale!r} is not a fraction of the images; give a number above 0 and up to 1.")
    usual = setting(dataset)
    memories = {name: given.get("memory", usual.memory) for name, given in columns.items()}
    classes = CLASSES[dataset] if dataset in CLASSES else len(load(dataset, data_home).classes)
    least = max(least_budget(method, ROWS_PER_CLASS * classes) for method in methods)
    shrink = min(1.0, max(scale, least / min(memories.values())))
    scaled = {name: round(shrink * memory) for name, memory in memories.items()}
    query_every = max(1, round(scale * usual.query_every))
    return {
        f"K={scaled[name]}" if name == f"K={memories[name]}" else name: {
            "query_every": query_every,
            **given,
            "memory": scaled[name],
            "share": scale,
        }
        for name, given in columns.items()
    }


def least_budget(method: Method, rows: int) -> int:
    """The smallest budget that leaves the method so many rows, and no fewer than a batch takes."""
    if method.admission.keeps_none:
        return 1
    budget = rows = max(rows, method.rehearsal.joins(sys.maxsize))
    while method.capacity(budget) < rows:
        budget += 1
    return budget
