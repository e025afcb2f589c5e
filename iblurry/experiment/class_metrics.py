"""Metrics of single classes along the curve: forgetting, worst cases, equal weights; from journals alone, in fractions.

The queries are the points n = 1, 2, ... and A_c(n) is the accuracy on the test images of class c, which every query
records, also in old journals. A journal does not say which classes a task is made of, and in a blurry stream none of
them is a task's own; so what De Lange et al. define over tasks is taken over classes. Where they wait for the end of a
task, a class counts as learnt from the first query at least `learnt_after` samples after its first one.

De Lange, van de Ven and Tuytelaars, "Continual evaluation for lifelong learning: Identifying the stability gap", ICLR
2023. Task-wise numbers of disjoint streams are higher: a task's mean falls less than its worst class does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iblurry.experiment.journal import Evaluation, NewClass, Query, Record, Start

Points = list[tuple[int, float]]  # samples seen and a value
LEARNT_AFTER = 0.1  # of the stream: from its first sample until a class counts as learnt


def balanced_acc(records: Sequence[Record]) -> Points:
    """Mean over the classes met of A_c: classes weigh equally, however many test images they have."""
    curves = class_curves(records)
    return curves.mean(curves.accuracy)


def aaa(records: Sequence[Record]) -> float | None:
    """Mean of `balanced_acc` over the queries (average anytime accuracy): A_AUC with equal weights of the classes."""
    values = [value for _, value in balanced_acc(records)]
    return sum(values) / len(values) if values else None


def forgetting(records: Sequence[Record]) -> Points:
    """Mean over the classes met of max_{n <= t} A_c(n) - A_c(t)."""
    curves = class_curves(records)
    return curves.mean(np.fmax.accumulate(curves.accuracy, axis=1) - curves.accuracy)


def min_acc(records: Sequence[Record], learnt_after: int | None = None) -> Points:
    """Mean over the classes learnt of min_{n <= t} A_c(n), n since c is learnt; it begins with the first such class.

    Parameters
    ----------
    records : sequence of Record
        A journal.
    learnt_after : int, optional
        Samples; by default a tenth of the stream.
    """
    curves = class_curves(records)
    return curves.mean(curves.least(learnt_after))


def wc_acc(records: Sequence[Record], learnt_after: int | None = None) -> Points:
    """Worst-case accuracy: mean over the classes met of the least A_c since c is learnt, or A_c(t) while it is not.

    With k classes of which the last is being learnt it is A_k(t) / k + (1 - 1 / k) min-ACC(t). Parameters as `min_acc`.
    """
    curves = class_curves(records)
    least = curves.least(learnt_after)
    return curves.mean(np.where(np.isnan(least), curves.accuracy, least))


def worst_class(records: Sequence[Record], learnt_after: int | None = None) -> Points:
    """The least A_c(t) of the classes learnt; parameters as `min_acc`."""
    curves = class_curves(records)
    return curves.reduce(np.nanmin, np.where(curves.learnt(learnt_after), curves.accuracy, np.nan))


def worst_cases(records: Sequence[Record], learnt_after: int | None = None) -> dict[str, float]:
    """The least A_c of each class that was learnt, by its label; parameters as `min_acc`."""
    curves = class_curves(records)
    last = curves.least(learnt_after)[:, -1:]
    return {label: float(low[0]) for label, low in zip(curves.labels, last, strict=True) if len(low) and low[0] >= 0}


def windowed_change(records: Sequence[Record], window: int, sign: int) -> float | None:
    """The largest fall (`sign` 1) or rise (-1) of A_c between two of `window` queries in a row, mean over classes.

    WF^w = mean over c of max_{n1 < n2 < n1 + w} A_c(n1) - A_c(n2); WP^w likewise of the rise.
    """
    accuracy = sign * class_curves(records).accuracy
    lags = range(1, min(window, accuracy.shape[1]))
    changes = np.concatenate([accuracy[:, :0], *(accuracy[:, :-lag] - accuracy[:, lag:] for lag in lags)], axis=1)
    largest = [row[~np.isnan(row)].max() for row in changes if not np.isnan(row).all()]
    return float(np.mean(largest)) if largest else None


CLASS_CURVES: dict[str, Callable[[Sequence[Record]], Points]] = {  # a value at each query; a table shows the last
    "balanced_acc": balanced_acc,
    "forgetting": forgetting,
    "min_acc": min_acc,
    "wc_acc": wc_acc,
    "worst_class": worst_class,
}
CLASS_METRICS: dict[str, Callable[[Sequence[Record]], float | None]] = {  # of the whole curve
    "aaa": aaa,
    "wf10": lambda records: windowed_change(records, 10, 1),
    "wf100": lambda records: windowed_change(records, 100, 1),
    "wp10": lambda records: windowed_change(records, 10, -1),
    "wp100": lambda records: windowed_change(records, 100, -1),
}


@dataclass(frozen=True)
class ClassCurves:
    """A_c at every query, of the classes that have test images.

    Parameters
    ----------
    labels : list of str
        In order of exposure.
    met : ndarray
        (classes,) number of the first sample of each.
    at : ndarray
        (queries,) samples seen.
    accuracy : ndarray
        (classes, queries); not a number before a class was met.
    samples : int
        In the whole stream.
    """

    labels: list[str]
    met: NDArray[np.int64]
    at: NDArray[np.int64]
    accuracy: NDArray[np.float64]
    samples: int

    def learnt(self, after: int | None) -> NDArray[np.bool_]:
        """(classes, queries): whether a class counts as learnt."""
        return self.at >= self.met[:, None] + (LEARNT_AFTER * self.samples if after is None else after)

    def least(self, after: int | None) -> NDArray[np.float64]:
        """(classes, queries): the least accuracy since a class is learnt; not a number before."""
        return np.fmin.accumulate(np.where(self.learnt(after), self.accuracy, np.nan), axis=1)

    def mean(self, values: NDArray[np.float64]) -> Points:
        """Over the classes that have a number, at each query where one has."""
        return self.reduce(np.nanmean, values)

    def reduce(self, how: Callable[..., NDArray[np.float64]], values: NDArray[np.float64]) -> Points:
        """`how` over the classes, at each query where one has a number."""
        some = ~np.isnan(values).all(axis=0)
        if not some.any():
            return []
        return list(zip(self.at[some].tolist(), how(values[:, some], axis=0).tolist(), strict=True))


def class_curves(records: Sequence[Record]) -> ClassCurves:
    """Reads the curve of each class from a journal."""
    met = [record for record in records if isinstance(record, NewClass)]
    queries = [record for record in records if isinstance(record, Query)]
    accuracy = accuracy_table(queries, len(met))
    asked = np.flatnonzero(~np.isnan(accuracy).all(axis=1))
    return ClassCurves(
        labels=[met[number].label for number in asked],
        met=np.array([met[number].at for number in asked], dtype=np.int64),
        at=np.array([query.at for query in queries], dtype=np.int64),
        accuracy=accuracy[asked],
        samples=next((record.samples for record in records if isinstance(record, Start)), 0),
    )


def accuracy_table(evaluations: Sequence[Evaluation], classes: int) -> NDArray[np.float64]:
    """(classes, evaluations); not a number before a class was met, and for one without test images."""
    table = np.full((classes, len(evaluations)), np.nan)
    for column, record in enumerate(evaluations):
        total = np.array(record.total, dtype=np.float64)
        table[: len(total), column] = np.array(record.correct) / np.where(total > 0, total, np.nan)
    return table
