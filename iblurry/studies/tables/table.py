"""Tables of runs: rows by columns by metrics, our mean over seeds beside the paper's, from journals alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iblurry.analysis.describe import describe_settings
from iblurry.data.load import parse_spec
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.metrics import CURVES, REDUCTIONS
from iblurry.experiment.result import Result
from iblurry.studies.paper import (
    PAPER_METRICS,
    PaperNumber,
    configuration_of,
    find_counterpart,
    is_bound,
    paper_number,
)
from iblurry.studies.selection import Selection
from iblurry.studies.shipped import find_other_orders
from iblurry.studies.study import PlannedRun, Study, find_finished
from iblurry.studies.verdict import judge

Better = Callable[[Iterable[float]], float]  # max or min


@dataclass(frozen=True)
class MeanStd:
    """A mean over seeds and its sample standard deviation (by n - 1; None for a single seed)."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return format_number(self.mean) + (f" ± {format_number(self.std)}" if self.std is not None else "")


@dataclass(frozen=True, kw_only=True)
class TableMetric:
    """A number of a finished run that a table can show."""

    name: str  # on the command line
    heading: str  # of its column
    value: Callable[[Result], float | None]  # in its unit; None where the run has none
    better: Better | None = None  # which mean is best; None where none is
    paper: str | None = None  # the paper's name for it
    digits: int | None = 2  # behind the point; None for three significant digits
    unit: str = "percent"


def _accuracy_metric(name: str, heading: str, better: Better = max) -> TableMetric:
    paper = next(paper for paper, field in PAPER_METRICS.items() if field == name)
    return TableMetric(
        name=name,
        heading=heading,
        value=lambda result: to_percent(getattr(result.metrics, name)),
        better=better,
        paper=paper,
    )


def _plain_metric(name: str, heading: str, better: Better = max) -> TableMetric:
    return TableMetric(name=name, heading=heading, value=lambda result: to_percent(result.metric(name)), better=better)


def _reduced(metric: TableMetric, reduction: str) -> TableMetric:
    """A curve's mean, least or greatest value instead of the last."""
    name, (word, arrow) = f"{metric.name}:{reduction}", metric.heading.rsplit(" ", 1)
    return _plain_metric(name, f"{word}:{reduction} {arrow}", metric.better or max)


def training_tflops(result: Result) -> float | None:
    """Spent on training in the whole run, queries aside; None for a run that did not count."""
    flops = (result.summary or {}).get("compute", {}).get("flops")
    return None if flops is None else (sum(flops.values()) - flops["queries"]) / 1e12


def held_megabytes(result: Result) -> float | None:
    """What the method needs from sample to sample, everything counted; None for a run that did not count."""
    held = (result.summary or {}).get("compute", {}).get("bytes")
    return None if held is None else sum(held.values()) / 1e6


def _accuracy_per_tflop(result: Result) -> float | None:
    accuracy, spent = to_percent(result.metrics.a_auc), training_tflops(result)
    return None if accuracy is None or not spent else accuracy / spent


ACCURACY_METRICS = {  # in the order of a table of runs
    "a_auc": _accuracy_metric("a_auc", "A_AUC ↑"),
    "a_avg": _accuracy_metric("a_avg", "A_avg ↑"),
    "a_last": _accuracy_metric("a_last", "A_last ↑"),
    "f_last": _accuracy_metric("f_last", "F_last ↓", min),
}
TABLE_METRICS = ACCURACY_METRICS | {
    "aaa": _plain_metric("aaa", "AAA ↑"),
    "balanced_acc": _plain_metric("balanced_acc", "balanced ↑"),
    "min_acc": _plain_metric("min_acc", "min-ACC ↑"),
    "wc_acc": _plain_metric("wc_acc", "WC-ACC ↑"),
    "worst_class": _plain_metric("worst_class", "worst class ↑"),
    "forgetting": _plain_metric("forgetting", "forgetting ↓", min),
    "wf10": _plain_metric("wf10", "WF10 ↓", min),
    "wf100": _plain_metric("wf100", "WF100 ↓", min),
    "wp10": _plain_metric("wp10", "WP10 ↑"),
    "wp100": _plain_metric("wp100", "WP100 ↑"),
    "klr": _plain_metric("klr", "KLR ↓", min),
    "kgr": _plain_metric("kgr", "KGR ↑"),
    "klr_released": _plain_metric("klr_released", "KLR (released) ↓", min),
    "kgr_released": _plain_metric("kgr_released", "KGR (released) ↑"),
    "compute": TableMetric(name="compute", heading="training TFLOP", value=training_tflops, digits=None, unit="TFLOP"),
    "bytes": TableMetric(name="bytes", heading="held MB", value=held_megabytes, digits=None, unit="MB"),
    "per_compute": TableMetric(
        name="per_compute", heading="A_AUC per TFLOP", value=_accuracy_per_tflop, digits=None, unit="percent per TFLOP"
    ),
}

LOGGED = "as logged"  # the unit of numbers that callbacks logged


def _own_metric(name: str) -> TableMetric:
    def value(result: Result) -> float | None:
        return result.metric(name) if name.partition(":")[0] in result.logged else None

    return TableMetric(name=name, heading=name, value=value, digits=None, unit=LOGGED)


def own_names(results: Iterable[Result]) -> list[str]:
    """What callbacks logged in any of these runs, by name."""
    return sorted({name for result in results for name in result.logged})


def find_metrics(
    names: Sequence[str], own: Collection[str], known: Mapping[str, TableMetric] = TABLE_METRICS
) -> tuple[TableMetric, ...]:
    """Those in `known`, and `own`, which callbacks log; of a curve the last value, or `name:mean`, min or max of it."""
    found = []
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is named {names.count(name)} times; name each once.")
        word, _, reduction = name.partition(":")
        is_curve = word in own or (word in known and word in CURVES)
        if name not in known and not is_curve:
            raise UnknownNameError("metric", name, [*known, *own])
        if name not in known and reduction and reduction not in REDUCTIONS:
            raise UnknownNameError(f"way to take {word}", reduction, REDUCTIONS)
        if name in known:
            found.append(known[name])
        else:
            found.append(_reduced(known[word], reduction) if word in known else _own_metric(name))
    return tuple(found)


@dataclass(frozen=True)
class TableCell:
    """One row, one column, one metric."""

    row: str
    column: str
    metric: TableMetric
    runs: Mapping[int, Result]  # by seed
    paper: PaperNumber | None = None  # what the paper prints there

    def __post_init__(self) -> None:
        """InputError if callbacks with other code or settings logged the numbers: their mean would be of nothing."""
        runs = list(self.runs.values()) if self.metric.unit == LOGGED else []
        for run in runs:
            if run.environment.get("callbacks") != runs[0].environment.get("callbacks"):
                raise InputError(
                    f"{runs[0].folder} and {run.folder} were run with different callbacks, so their {self.metric.name} "
                    "cannot be compared; run one of them again with --again."
                )

    @property
    def values(self) -> dict[int, float]:
        """By seed; empty unless every run has the number."""
        values = {seed: value for seed, run in self.runs.items() if (value := self.metric.value(run)) is not None}
        return values if len(values) == len(self.runs) else {}

    @property
    def ours(self) -> MeanStd | None:
        return mean_std(list(self.values.values()))

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return self.ours.mean - self.paper.mean if self.ours and self.paper else None

    @property
    def verdict(self) -> str | None:
        """Whether our mean agrees with the paper's; None unless there are both."""
        ours = self.ours
        return judge(self.paper, ours, len(self.runs)) if self.paper and ours else None


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """Runs by row and column, and the metrics shown of them."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]  # a single column "" where nothing is varied
    metrics: tuple[TableMetric, ...]
    cells: Mapping[tuple[str, str, str], TableCell]  # by row, column and the metric's name

    def column(self, column: str, metric: str) -> list[TableCell]:
        """One column of numbers from top to bottom."""
        return [self.cells[row, column, metric] for row in self.rows]

    def headings(self) -> Iterator[tuple[str, TableMetric]]:
        """Every column of numbers, from left to right."""
        return ((column, metric) for column in self.columns for metric in self.metrics)

    def stopped(self) -> dict[str, Result]:
        """Runs that a callback ended before their stream, by row, column and seed."""
        return {
            " ".join(filter(None, [cell.row, cell.column, f"seed {seed}"])): run
            for cell in self.cells.values()
            for seed, run in cell.runs.items()
            if run.stopped is not None
        }

    def is_best(self, cell: TableCell) -> bool:
        """Of our means in its column, ties as printed; a lone one is not, nor is joint training, which is a bound."""
        metric, ours = cell.metric, cell.ours
        if ours is None or metric.better is None or is_bound(cell.row):
            return False
        means = [one.ours.mean for one in self.column(cell.column, metric.name) if one.ours and not is_bound(one.row)]
        best = format_number(metric.better(means), metric.digits)
        return len(means) > 1 and format_number(ours.mean, metric.digits) == best


@dataclass(frozen=True, kw_only=True)
class StudyTable(ResultTable):
    """The table of a study on one data set."""

    selection: Selection
    settings: str  # what all its experiments have in common
    missing: tuple[PlannedRun, ...]  # not finished in any of the folders that were searched
    other_orders: frozenset[tuple[str, str]] = frozenset()  # rows and columns with runs on other orders than planned

    @property
    def study(self) -> Study:
        return self.selection.study


def tabulate_runs(groups: Mapping[str, Sequence[Result]], metrics: Sequence[str] | None = None) -> ResultTable:
    """The table of `iblurry run` and `iblurry show`: a row per group of runs; by default the accuracies."""
    chosen = find_metrics(
        metrics or list(ACCURACY_METRICS), own_names(result for group in groups.values() for result in group)
    )
    runs = {row: {result.experiment.seed: result for result in results} for row, results in groups.items()}
    cells = {(row, "", metric.name): TableCell(row, "", metric, runs[row]) for row in groups for metric in chosen}
    return ResultTable(rows=tuple(groups), columns=("",), metrics=chosen, cells=cells)


def tabulate_study(
    selection: Selection,
    folders: Sequence[Path],
    *,
    metrics: Sequence[str] | None = None,
    paper: bool = True,
    known: Mapping[str, TableMetric] = TABLE_METRICS,
) -> StudyTable:
    """The table of a study, or of a part of it, from finished runs in the first of `folders` that has each.

    `metrics` are names in `known` or of what callbacks logged, the study's unless given; `paper` says whether to look
    up the paper's numbers. A cell without runs on the planned orders takes those on others, unless the selection names
    its orders.
    """
    finished = find_finished(selection.planned, folders)
    if not finished:
        parse_spec(selection.dataset)  # raises if the name of the data set was mistyped
    groups: dict[tuple[str, str], list[PlannedRun]] = {}
    for planned in selection.planned:
        groups.setdefault((planned.row, planned.column), []).append(planned)
    runs = {
        cell: {planned.experiment.seed: finished[planned] for planned in group if planned in finished}
        for cell, group in groups.items()
    }
    lacking = {cell: groups[cell] for cell in groups if not runs[cell]}
    others = {} if selection.names_orders else find_other_orders(lacking, folders)
    runs |= others
    own = own_names(result for results in runs.values() for result in results.values())
    chosen = find_metrics(tuple(metrics or selection.study.metrics), own, known)
    cells: dict[tuple[str, str, str], TableCell] = {}
    for (row, column), group in groups.items():
        experiment = group[0].experiment
        method = find_counterpart(experiment) if paper else None
        for metric in chosen:
            number = (
                paper_number(method, metric.paper, configuration_of(experiment)) if method and metric.paper else None
            )
            cells[row, column, metric.name] = TableCell(row, column, metric, runs[row, column], number)
    columns = tuple(dict.fromkeys(planned.column for planned in selection.planned))
    for row, column, metric in itertools.product(selection.row_names, columns, chosen):  # cells that a study leaves out
        cells.setdefault((row, column, metric.name), TableCell(row, column, metric, {}))
    return StudyTable(
        rows=selection.row_names,
        columns=columns,
        metrics=chosen,
        cells=cells,
        selection=selection,
        settings=", ".join(
            filter(None, [describe_settings([one.experiment for one in selection.planned]), selection.equal])
        ),
        missing=tuple(
            planned
            for planned in selection.planned
            if planned not in finished and (planned.row, planned.column) not in others
        ),
        other_orders=frozenset(others),
    )


def to_percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def mean_std(values: Sequence[float | None]) -> MeanStd | None:
    """Over seeds; None unless every one has a number, and there is one.

    >>> mean_std([70.0])
    MeanStd(mean=70.0, std=None)
    """
    known = np.array([value for value in values if value is not None])
    if len(known) < len(values) or not len(known):
        return None
    return MeanStd(float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else None)


def format_number(value: float, digits: int | None = 2) -> str:
    """As it stands in a cell, with so many digits behind the point; None: three significant digits.

    >>> format_number(69.996), format_number(-0.001), format_number(0.034111, None), format_number(30_123.4, None)
    ('70.00', '0.00', '0.0341', '30,123')
    """
    return f"{value:z,.{count_decimals(value) if digits is None else digits}f}"  # z: no "-0.00"


def count_decimals(value: float) -> int:
    """How many digits behind the point leave three significant ones.

    >>> count_decimals(0.034111), count_decimals(3.4), count_decimals(30_123.4)
    (4, 2, 0)
    """
    return max(0, 2 - math.floor(math.log10(abs(value)))) if value else 2
