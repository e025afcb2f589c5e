"""A table of runs: rows by columns by metrics, mean and spread over seeds, beside the numbers of a paper.

One rule gives the verdict on a number of ours beside the paper's: by the standard error of their difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from iblurry.analysis.describe import is_bound
from iblurry.analysis.results import held_bytes, training_flops
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.metrics import CURVES, REDUCTIONS
from iblurry.experiment.result import Result

if TYPE_CHECKING:
    from pandas import DataFrame

Better = Callable[[Iterable[float]], float]  # max or min
NOTHING = "–"  # stands where there is no number
LOGGED = "as logged"  # the unit of numbers that callbacks logged
Runs = Mapping[tuple[str, str], Mapping[int, Result]]  # by row and column, and by seed
KEYS = ["row", "column", "metric"]
PAPER_SEEDS = 3  # wherever the paper prints a spread
AGREES, ABOVE, BELOW, NOT_JUDGED = "agrees", "above", "below", "not judged"
ERRORS = 2  # standard errors that two means which agree may lie apart
RULE = (  # ends any note on verdicts
    "agrees: the means are no further apart than two standard errors of their difference, by both spreads; else above "
    "or below; not judged: neither side has a spread, or the number has a warning (⚠)"
)


@dataclass(frozen=True)
class MeanStd:
    """A mean over seeds and its sample standard deviation (by n - 1; None for a single seed)."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return " ± ".join(self.texts())

    def texts(self, digits: int | None = 2) -> list[str]:
        """Write the mean and, if there is one, the spread, to the same place behind the point.

        `digits` are those behind it; None leaves three significant ones of the mean.
        """
        digits = _count_decimals(self.mean) if digits is None else digits
        return [format_number(value, digits) for value in (self.mean, self.std) if value is not None]


@dataclass(frozen=True, kw_only=True)
class TableMetric:
    """A number of a run that a table can show."""

    name: str  # on the command line
    heading: str  # of its column
    value: Callable[[Result], float | None]  # in its unit; None where the run has none
    better: Better | None = None  # which mean is best; None where none is
    digits: int | None = 2  # behind the point; None for three significant digits
    unit: str = "percent"


def _in_percent(name: str, heading: str, better: Better = max) -> TableMetric:
    def value(run: Result) -> float | None:
        fraction = run.metric(name)
        return None if fraction is None else 100 * fraction

    return TableMetric(name=name, heading=heading, value=value, better=better)


def _plain(name: str, heading: str, unit: str, value: Callable[[Result], float | None]) -> TableMetric:
    return TableMetric(name=name, heading=heading, value=value, digits=None, unit=unit)


def _scaled(value: float | None, size: float) -> float | None:
    return None if value is None else value / size


def _accuracy_per_tflop(run: Result) -> float | None:
    accuracy, spent = run.metrics.a_auc, training_tflops(run)
    return None if accuracy is None or not spent else 100 * accuracy / spent


def training_tflops(run: Result) -> float | None:
    """Training operations of the whole run, in units of 10¹²; None for a run that did not count."""
    return _scaled(training_flops(run), 1e12)


ACCURACY_METRICS = {  # in the order of a table of runs
    one.name: one
    for one in (
        _in_percent("a_auc", "A_AUC ↑"),
        _in_percent("a_avg", "A_avg ↑"),
        _in_percent("a_last", "A_last ↑"),
        _in_percent("f_last", "F_last ↓", min),
    )
}
TABLE_METRICS = ACCURACY_METRICS | {
    one.name: one
    for one in (
        _in_percent("aaa", "AAA ↑"),
        _in_percent("balanced_acc", "balanced ↑"),
        _in_percent("min_acc", "min-ACC ↑"),
        _in_percent("wc_acc", "WC-ACC ↑"),
        _in_percent("worst_class", "worst class ↑"),
        _in_percent("forgetting", "forgetting ↓", min),
        _in_percent("wf10", "WF10 ↓", min),
        _in_percent("wf100", "WF100 ↓", min),
        _in_percent("wp10", "WP10 ↑"),
        _in_percent("wp100", "WP100 ↑"),
        _in_percent("klr", "KLR ↓", min),
        _in_percent("kgr", "KGR ↑"),
        _in_percent("klr_released", "KLR (released) ↓", min),
        _in_percent("kgr_released", "KGR (released) ↑"),
        _plain("compute", "training TFLOP", "TFLOP", training_tflops),
        _plain("bytes", "held MB", "MB", lambda run: _scaled(held_bytes(run), 1e6)),
        _plain("per_compute", "A_AUC per TFLOP", "percent per TFLOP", _accuracy_per_tflop),
    )
}


def logged_names(runs: Iterable[Result]) -> list[str]:
    """Name what callbacks logged in any of these runs."""
    return sorted({name for run in runs for name in run.logged})


def find_metrics(
    names: Sequence[str], logged: Collection[str], known: Mapping[str, TableMetric] = TABLE_METRICS
) -> tuple[TableMetric, ...]:
    """Look up metrics: those in `known`, and `logged`, which callbacks log; `name:mean`, min or max of a curve."""
    found = []
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is named {names.count(name)} times; name each once.")
        word, _, reduction = name.partition(":")
        if name in known:
            found.append(known[name])
        elif word not in logged and not (word in known and word in CURVES):
            raise UnknownNameError("metric", name, [*known, *logged])
        elif reduction and reduction not in REDUCTIONS:
            raise UnknownNameError(f"way to take {word}", reduction, REDUCTIONS)
        elif word in known:
            heading, arrow = known[word].heading.rsplit(" ", 1)
            found.append(_in_percent(name, f"{heading}:{reduction} {arrow}", known[word].better or max))
        else:
            found.append(_logged(name, word))
    return tuple(found)


def _logged(name: str, word: str) -> TableMetric:
    return _plain(name, name, LOGGED, lambda run: run.metric(name) if word in run.logged else None)


def mean_std(values: Sequence[float | None]) -> MeanStd | None:
    """Average over seeds; None unless every one has a number, and there is one.

    >>> mean_std([70.0])
    MeanStd(mean=70.0, std=None)
    """
    known = np.array([value for value in values if value is not None])
    if len(known) < len(values) or not len(known):
        return None
    return MeanStd(float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else None)


def cell_number(cell: Any) -> MeanStd | None:
    """Mean and spread of a line of a table's cells; None where there is no number."""
    if cell.mean != cell.mean:
        return None
    return MeanStd(float(cell.mean), None if cell.std != cell.std else float(cell.std))


def format_value(number: MeanStd | None) -> str:
    """Write a number in percent, such as 70.26 ± 1.28."""
    return NOTHING if number is None else str(number)


def format_number(value: float, digits: int | None = 2) -> str:
    """Write a number as it stands in a cell, with so many digits behind the point; None: three significant digits.

    >>> format_number(69.996), format_number(-0.001), format_number(0.034111, None), format_number(30_123.4, None)
    ('70.00', '0.00', '0.0341', '30,123')
    """
    return f"{value:z,.{_count_decimals(value) if digits is None else digits}f}"  # z: no "-0.00"


def _count_decimals(value: float) -> int:
    """Count the digits behind the point that leave three significant ones.

    >>> _count_decimals(0.034111), _count_decimals(3.4), _count_decimals(30_123.4)
    (4, 2, 0)
    """
    return max(0, 2 - math.floor(math.log10(abs(value)))) if value else 2


@dataclass(frozen=True)
class PaperNumber(MeanStd):
    """A cell of one of the paper's tables: mean over three seeds in percent, and its spread; None of one seed."""

    tables: tuple[int, ...]  # that print it
    warning: str | None = None  # why it should not be a target: probably a copy error

    @property
    def seeds(self) -> int:
        """Runs that the mean is over."""
        return 1 if self.std is None else PAPER_SEEDS


def find_warnings(numbers: Iterable[PaperNumber | None]) -> list[str]:
    """Why numbers of the paper are not judged, each reason once."""
    return list(dict.fromkeys(paper.warning for paper in numbers if paper and paper.warning))


def standard_error(paper: PaperNumber, ours: MeanStd, n: int) -> float | None:
    """Compute that of ours minus the paper's: √(s_paper²/3 + s_ours²/n), for three seeds of the paper's and n of ours.

    A single run has no spread and is taken to vary as the other side does; None where neither side has one.
    """
    sides = [(paper.std, paper.seeds), (ours.std, n)]
    known = [std for std, _ in sides if std is not None]
    if not known:
        return None
    return math.sqrt(sum((known[0] if std is None else std) ** 2 / seeds for std, seeds in sides))


def judge(paper: PaperNumber, ours: MeanStd, n: int) -> str:
    """Say whether our mean over n seeds agrees with the paper's, or lies above or below it."""
    error = standard_error(paper, ours, n)
    if error is None or paper.warning is not None:
        return NOT_JUDGED
    apart = ours.mean - paper.mean
    if abs(apart) <= ERRORS * error:
        return AGREES
    return ABOVE if apart > 0 else BELOW


@dataclass(frozen=True, kw_only=True)
class Table:
    """Runs by row and column, and their numbers as two tables of pandas.

    `values` has one line per run and metric: row, column, metric, seed, value. `cells` has one per row, column and
    metric, which are its index: n (runs), mean and std (not a number unless every run has one), best; paper (what it
    prints there, or None), difference (ours minus the paper's), its standard error and verdict. The rest is what a
    table says in words.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]  # a single column "" where nothing is varied
    metrics: tuple[TableMetric, ...]
    runs: Runs
    values: DataFrame
    cells: DataFrame
    title: str = ""
    caption: str = ""  # how it begins in LaTeX
    label: str = ""  # in LaTeX
    other_orders: frozenset[tuple[str, str]] = frozenset()  # rows and columns with runs on other orders than planned
    order_notes: Sequence[str] = ()  # on rows whose runs are on other orders
    missing_words: Sequence[str] = ()  # the runs that are not finished
    commands: Sequence[str] = ()  # that run them
    about: Mapping[str, Any] = field(default_factory=dict)  # more for JSON and CSV

    def ours(self, row: str, column: str, metric: str) -> MeanStd | None:
        """Mean and spread of a cell; None where there is no number."""
        return cell_number(next(self.cells.loc[[(row, column, metric)]].itertuples()))

    def by_seed(self, column: str, metric: str) -> dict[str, dict[int, float]]:
        """The values of a column of numbers by row and seed; rows with a number for every run alone."""
        values = self.values[(self.values["column"] == column) & (self.values["metric"] == metric)]
        rows = {row: values[values["row"] == row].set_index("seed")["value"] for row in self.rows}
        return {row: found.to_dict() for row, found in rows.items() if len(found) and found.notna().all()}

    @property
    def has_paper(self) -> bool:
        """Whether the paper's numbers stand beside ours."""
        return bool(self.cells["paper"].notna().any())

    @property
    def all_runs(self) -> list[tuple[str, str, int, Result]]:
        """Every run with its row, column and seed."""
        return [(*place, seed, run) for place, seeds in self.runs.items() for seed, run in seeds.items()]


def tabulate_runs(
    groups: Mapping[str, Sequence[Result]],
    metrics: Sequence[str] | None = None,
    paper: Mapping[tuple[str, str, str], PaperNumber] | None = None,
) -> Table:
    """Make the table of `iblurry run` and `iblurry show`: a row per group of runs; by default the accuracies.

    `paper` has its numbers by row, column and metric.
    """
    logged = logged_names(run for group in groups.values() for run in group)
    chosen = find_metrics(metrics or [*ACCURACY_METRICS], logged)
    runs = {(row, ""): {run.experiment.seed: run for run in group} for row, group in groups.items()}
    frames = make_frames([*groups], [""], chosen, runs, paper)
    return Table(rows=tuple(groups), columns=("",), metrics=chosen, runs=runs, **frames)


def make_frames(
    rows: Sequence[str],
    columns: Sequence[str],
    metrics: Sequence[TableMetric],
    runs: Runs,
    paper: Mapping[tuple[str, str, str], PaperNumber] | None = None,
) -> dict[str, DataFrame]:
    """Make `values` and `cells` of a Table; `paper` has its numbers by row, column and metric."""
    import pandas as pd

    for metric in metrics:
        _check_callbacks(metric, runs)
    lines = [
        (*place, metric.name, seed, metric.value(run))
        for place, seeds in runs.items()
        for metric in metrics
        for seed, run in seeds.items()
    ]
    values = pd.DataFrame(lines, columns=[*KEYS, "seed", "value"]).astype({"value": float})
    places = [(row, column, metric.name) for column in columns for row in rows for metric in metrics]
    cells = values.groupby(KEYS)["value"].agg(["size", "count", "mean", "std"])
    cells.loc[cells["count"] < cells["size"], ["mean", "std"]] = float("nan")  # a mean over all seeds, or none
    cells = cells.reindex(pd.MultiIndex.from_tuples(places, names=KEYS)).rename(columns={"size": "n"})
    cells["n"] = cells["n"].fillna(0).astype(int)
    cells["best"] = _are_best(cells, metrics)
    theirs = [(paper or {}).get(place) for place in places]
    cells["paper"] = pd.Series(theirs, cells.index, dtype=object)
    cells["difference"] = cells["mean"] - [float("nan") if one is None else one.mean for one in theirs]
    both = [
        (cell.paper, ours, cell.n) if cell.paper and (ours := cell_number(cell)) else None
        for cell in cells.itertuples()
    ]
    cells["error"] = pd.Series([sides and standard_error(*sides) for sides in both], cells.index, dtype=float)
    cells["verdict"] = pd.Series([sides and judge(*sides) for sides in both], cells.index, dtype=object)
    return {"values": values, "cells": cells.drop(columns="count")}


def _are_best(cells: DataFrame, metrics: Sequence[TableMetric]) -> DataFrame:
    """Whether a mean is the best of its column, ties as printed; a lone one is not, nor is a bound such as joint."""
    import pandas as pd

    best = pd.Series(False, cells.index)
    contenders = cells["mean"][[not is_bound(row) for row, *_ in cells.index]].dropna()
    for metric in metrics:
        own = contenders[contenders.index.get_level_values("metric") == metric.name]
        for _, means in own.groupby("column"):
            if metric.better is not None and len(means) > 1:
                printed = means.map(lambda mean, digits=metric.digits: format_number(mean, digits))
                best[means.index[printed == format_number(metric.better(means), metric.digits)]] = True
    return best


def _check_callbacks(metric: TableMetric, runs: Runs) -> None:
    """Refuse numbers of one cell that callbacks with other code or settings logged: their mean would be of nothing."""
    for seeds in runs.values() if metric.unit == LOGGED else ():
        first, *others = seeds.values()
        for run in others:
            if run.environment.get("callbacks") != first.environment.get("callbacks"):
                raise InputError(
                    f"{first.folder} and {run.folder} were run with different callbacks, so their {metric.name} "
                    "cannot be compared; run one of them again with --again."
                )
