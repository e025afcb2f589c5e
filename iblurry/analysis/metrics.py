"""The numbers of a run that tables and figures show: their names, headings and units, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iblurry.analysis.results import held_bytes, training_flops
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.metrics import CURVES, REDUCTIONS
from iblurry.experiment.result import Result

Better = Callable[[Iterable[float]], float]  # max or min
NOTHING = "–"  # stands where there is no number
LOGGED = "as logged"  # the unit of numbers that callbacks logged


@dataclass(frozen=True)
class MeanStd:
    """A mean over seeds and its sample standard deviation (by n - 1; None for a single seed)."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return " ± ".join(format_number(value) for value in (self.mean, self.std) if value is not None)


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


def format_mean_std(metric: TableMetric, mean: float, std: float | None) -> list[str]:
    """Write the mean and, if there is one, the spread, to the same place behind the point."""
    digits = _count_decimals(mean) if metric.digits is None else metric.digits
    return [format_number(value, digits) for value in (mean, std) if value is not None and value == value]


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
