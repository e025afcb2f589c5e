"""The paper's metrics of a journal, A_AUC, A_avg, A_last and F_last, as pure functions of its records, in fractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
from numpy.typing import NDArray

from iblurry.experiment.class_metrics import CLASS_CURVES, CLASS_METRICS, Points
from iblurry.experiment.journal import Evaluation, Logged, Query, Record, Start, Stopped, TaskEnd
from iblurry.experiment.knowledge import kgr, klr


@dataclass(frozen=True)
class Metrics:
    """The numbers of a run so far; accuracies are fractions, None where they are not defined yet.

    Parameters
    ----------
    a_auc : float or None
        Area under the accuracy-to-samples curve: its mean.
    a_avg : float or None
        Mean accuracy at the ends of the tasks; None without a boundary between tasks.
    a_last : float or None
        Accuracy at the end of the last task that has ended.
    f_last : float or None
        Class-wise forgetting from the best earlier task end to the last one; None without a boundary between tasks.
    samples : int
        Seen at the last evaluation.
    updates : int
        Made until then.
    queries : int
        Points of the curve.
    """

    a_auc: float | None
    a_avg: float | None
    a_last: float | None
    f_last: float | None
    samples: int
    updates: int
    queries: int


NO_BOUNDARIES = "A_avg and F_last are undefined (–) without task boundaries"
CURVES: dict[str, Callable[[Sequence[Record]], Points]] = CLASS_CURVES | {  # values along a run; a table shows the last
    "klr": klr,
    "kgr": kgr,
    "klr_released": partial(klr, rule="released"),
    "kgr_released": partial(kgr, rule="released"),
}
RESERVED = (  # names of metrics of the package
    *(field.name for field in fields(Metrics)),
    *(*CURVES, *CLASS_METRICS),
    *("compute", "per_compute", "bytes"),
)
REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {  # of a metric's values along a run to one number
    "last": lambda values: values[-1],
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
}


def metrics(records: Sequence[Record]) -> Metrics:
    """All of them at once."""
    evaluations = [record for record in records if isinstance(record, Evaluation)]
    return Metrics(
        a_auc=a_auc(records),
        a_avg=a_avg(records),
        a_last=a_last(records),
        f_last=f_last(records),
        samples=max((record.at for record in evaluations), default=0),
        updates=max((record.updates for record in evaluations), default=0),
        queries=len(curve(records)[0]),
    )


def curve(records: Sequence[Record]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Samples seen, and the accuracy on the classes met so far, at every query."""
    queries = [record for record in records if isinstance(record, Query)]
    return (
        np.array([query.at for query in queries], dtype=np.int64),
        np.array([query.accuracy for query in queries], dtype=np.float64),
    )


def a_auc(records: Sequence[Record]) -> float | None:
    """Area under the curve of accuracy to samples, by the samples it spans: the mean of the curve.

    The paper's sum of f(i dn) dn is divided by k dn, as its tables are.

    Koh et al., "Online Continual Learning on Class Incremental Blurry Task Configuration with Anytime Inference",
    ICLR 2022, Section 3.
    """
    return _mean(curve(records)[1])


def a_avg(records: Sequence[Record]) -> float | None:
    """Mean accuracy at the ends of the tasks.

    None where a task that has ended was not asked about, and where no boundary lies between tasks.
    """
    asked = [record.task for record in records if isinstance(record, TaskEnd)]
    is_defined = has_boundaries(records) and asked == list(range(len(asked)))
    return _mean(_task_accuracy(records)) if is_defined else None


def a_last(records: Sequence[Record]) -> float | None:
    """Accuracy at the end of the last task that has ended."""
    accuracy = _task_accuracy(records)
    return float(accuracy[-1]) if len(accuracy) else None


def f_last(records: Sequence[Record]) -> float | None:
    """Class-wise forgetting: how far each class fell from its best earlier task end to the last one, on average.

    Only classes that were ever right before the last task count; a class that improved counts as negative.
    None with fewer than two tasks, or when no class counts.
    """
    accuracy = class_accuracy(records)
    if len(accuracy) < 2:
        return None
    best = accuracy[:-1].max(axis=0)
    return _mean((best - accuracy[-1])[best > 0])


def has_boundaries(records: Sequence[Record]) -> bool:
    """Whether the stream, as far as it is run, has a boundary between tasks; A_avg and F_last are undefined if not."""
    return not any(isinstance(record, Start) and len(record.ends) == 1 for record in records)


def class_accuracy(records: Sequence[Record]) -> NDArray[np.float64]:
    """Accuracy of each class (columns, in order of exposure) at each task end (rows); 0 for a class not met yet.

    Differs: exactly correct / total, where the released program divides by total + 1e-5.
    """
    ends = [record for record in records if isinstance(record, TaskEnd)]
    table = np.zeros((len(ends), max((len(end.total) for end in ends), default=0)))
    for row, end in zip(table, ends, strict=True):
        known = len(end.total)
        row[:known] = np.array(end.correct) / np.maximum(end.total, 1)  # a class without test images was never right
    return table


def logged(records: Sequence[Record]) -> dict[str, list[tuple[int, float]]]:
    """What callbacks logged, by name: samples seen and the value, in the order it was logged."""
    found: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        if isinstance(record, Logged):
            found.setdefault(record.name, []).append((record.at, record.value))
    return found


def stopped(records: Sequence[Record]) -> Stopped | None:
    """Where and why a callback ended the run before its stream; None: none did."""
    last = records[-1] if records else None
    return last if isinstance(last, Stopped) else None


def _task_accuracy(records: Sequence[Record]) -> NDArray[np.float64]:
    return np.array([record.accuracy for record in records if isinstance(record, TaskEnd)], dtype=np.float64)


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None
