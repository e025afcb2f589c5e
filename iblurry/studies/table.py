"""The table of a study: rows by columns by numbers, our mean over seeds and the paper's, from finished runs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iblurry.data.load import parse_spec
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.result import Result
from iblurry.studies.compare import FIELDS, configuration, counterpart
from iblurry.studies.paper import Number, paper_number
from iblurry.studies.run_rows import settings
from iblurry.studies.run_table import COLUMNS, Better, Spread, best, is_bound, percent, printed, spread
from iblurry.studies.selection import Selection
from iblurry.studies.study import Planned, Study, found

WITHIN, ABOVE, BELOW, NOT_JUDGED = "within", "above", "below", "not judged"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number of a finished run; one more is one more column."""

    name: str  # on the command line
    heading: str
    of: Callable[[Result], float | None]  # in the unit it is printed in
    better: Better | None = None  # max or min; None where none is best
    paper: str | None = None  # the paper's name for it; None where it has none
    digits: int | None = 2  # behind the point; None: three that count
    unit: str = "percent"


def _metric(name: str) -> Measure:
    heading, better = COLUMNS[name]
    theirs = next(paper for paper, field in FIELDS.items() if field == name)
    return Measure(
        name=name,
        heading=heading,
        of=lambda result: percent(getattr(result.metrics, name)),
        better=better,
        paper=theirs,
    )


def training_tflops(result: Result) -> float | None:
    """Spent on training in the whole run, questions aside; None for a run that did not count."""
    flops = (result.summary or {}).get("compute", {}).get("flops")
    return None if flops is None else (sum(flops.values()) - flops["queries"]) / 1e12


def _per_compute(result: Result) -> float | None:
    right, spent = percent(result.metrics.a_auc), training_tflops(result)
    return None if right is None or not spent else right / spent


MEASURES = {name: _metric(name) for name in COLUMNS} | {
    "compute": Measure(name="compute", heading="training TFLOP", of=training_tflops, digits=None, unit="TFLOP"),
    "per_compute": Measure(
        name="per_compute", heading="A_AUC per TFLOP", of=_per_compute, digits=None, unit="percent per TFLOP"
    ),
}


@dataclass(frozen=True)
class Cell:
    """One row, one column, one number."""

    row: str
    column: str
    measure: Measure
    runs: Mapping[int, Result]  # finished, by seed
    paper: Number | None = None

    @property
    def values(self) -> dict[int, float]:
        """By seed; empty unless every run has the number."""
        values = {seed: value for seed, run in self.runs.items() if (value := self.measure.of(run)) is not None}
        return values if len(values) == len(self.runs) else {}

    @property
    def ours(self) -> Spread | None:
        return spread(list(self.values.values()))

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return self.ours.mean - self.paper.mean if self.ours and self.paper else None

    @property
    def standing(self) -> str | None:
        """Whether our mean lies within the paper's mean ± its spread; not judged without a spread, or if warned of."""
        if self.paper is None or self.difference is None:
            return None
        if self.paper.std is None or self.paper.warning is not None:
            return NOT_JUDGED
        if abs(self.difference) <= self.paper.std:
            return WITHIN
        return ABOVE if self.difference > 0 else BELOW


@dataclass(frozen=True)
class StudyTable:
    """All cells of a study on one data set, and which runs they lack."""

    selection: Selection
    settings: str  # what all its experiments have in common
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    measures: tuple[Measure, ...]
    cells: Mapping[tuple[str, str, str], Cell]  # by row, column and the number's name
    missing: tuple[Planned, ...]  # not finished in any of the places

    @property
    def study(self) -> Study:
        return self.selection.study

    @property
    def dataset(self) -> str:
        return self.selection.dataset

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.selection.seeds

    def along(self, column: str, measure: Measure) -> list[Cell]:
        """One column from top to bottom."""
        return [self.cells[row, column, measure.name] for row in self.rows]

    def across(self) -> Iterator[tuple[str, Measure]]:
        """Every column of numbers, from left to right."""
        return ((column, measure) for column in self.columns for measure in self.measures)

    def is_best(self, cell: Cell) -> bool:
        """Of our means in its column, ties as printed; a lone one is not, nor is joint training, which is a bound."""
        measure, ours = cell.measure, cell.ours
        if ours is None or measure.better is None or is_bound(cell.row):
            return False
        means = [one.ours.mean for one in self.along(cell.column, measure) if one.ours and not is_bound(one.row)]
        return printed(ours.mean, measure.digits) == best(means, measure.better, measure.digits)


def tabulate(
    selection: Selection,
    places: Sequence[Path],
    *,
    metrics: Sequence[str] | None = None,
    paper: bool = True,
    measures: Mapping[str, Measure] = MEASURES,
) -> StudyTable:
    """The table from the finished runs in `places`, folders of runs; the first that has a run counts."""
    names, rows = tuple(metrics or selection.study.metrics), selection.wanted
    for name in names:
        if name not in measures:
            raise UnknownNameError("metric", name, measures)
        if names.count(name) > 1:
            raise InputError(f"{name} is named {names.count(name)} times; name each once.")
    planned = selection.planned
    there = found(planned, places)
    if not there:
        parse_spec(selection.dataset)  # a name that was mistyped is said to be one
    cells: dict[tuple[str, str, str], Cell] = {}
    for group in _by_place(planned):
        first, runs = group[0], {one.experiment.seed: there[one] for one in group if one in there}
        theirs = counterpart(first.experiment) if paper else None
        for name in names:
            measure = measures[name]
            number = (
                paper_number(theirs, measure.paper, configuration(first.experiment))
                if theirs and measure.paper
                else None
            )
            cells[first.row, first.column, name] = Cell(first.row, first.column, measure, runs, number)
    return StudyTable(
        selection,
        settings([one.experiment for one in planned]),
        rows,
        tuple(dict.fromkeys(one.column for one in planned)),
        tuple(measures[name] for name in names),
        cells,
        tuple(one for one in planned if one not in there),
    )


def _by_place(planned: Sequence[Planned]) -> list[list[Planned]]:
    """What differs in the seed alone."""
    groups: dict[tuple[str, str], list[Planned]] = {}
    for one in planned:
        groups.setdefault((one.row, one.column), []).append(one)
    return list(groups.values())
