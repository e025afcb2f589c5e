"""Metrics of a journal, as pure functions of its records, in fractions.

The paper's: A_AUC, A_avg, A_last and F_last.

Metrics of single classes along the curve: forgetting, worst cases, equal weights. The queries are the points
n = 1, 2, ... and A_c(n) is the accuracy on the test images of class c, which every query records, also in old journals.
A journal does not say which classes a task is made of, and in a blurry stream none of them is a task's own; so what De
Lange et al. define over tasks is taken over classes. Where they wait for the end of a task, a class counts as learnt
from the first query at least `learnt_after` samples after its first one.

De Lange, van de Ven and Tuytelaars, "Continual evaluation for lifelong learning: Identifying the stability gap", ICLR
2023. Task-wise numbers of disjoint streams are higher: a task's mean falls less than its worst class does.

KLR and KGR: how much of what a learner knew it lost, and of what it could learn it gained, between two moments.

y is the class of a test image, a the answer at one moment and b at the next, over all test images, those of classes not
met yet too. With the mutual information I, N classes of which C2 are met at the second moment:

    KLR = I(y; a | b) / I(y; a)        KGR = I(y; b | a) / (log C2 - I(y; a))

The first moment has no answer before it: I(y; a) is 0 there, and there is a KGR and no KLR. The mean of each over a
run (`klr:mean`, `kgr:mean`) is what the paper reports.

Koh et al., "Online Boundary-Free Continual Learning by Scheduled Data Prior", ICLR 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iblurry.experiment.journal import Answers, Evaluation, Logged, NewClass, Query, Record, Start, Stopped, TaskEnd

Points = list[tuple[int, float]]  # samples seen and a value
Rule = Literal["counted", "released"]
Floats = NDArray[np.float64]
LEARNT_AFTER = 0.1  # of the stream: from its first sample until a class counts as learnt
EPS = 1e-9  # nats: less is none
NO_BOUNDARIES = "A_avg and F_last are undefined (–) without task boundaries"
REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {  # of a metric's values along a run to one number
    "last": lambda values: values[-1],
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
}


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


def klr(records: Sequence[Record], rule: Rule = "counted") -> Points:
    """Knowledge loss ratio at each moment that answers were journalled, but for the first.

    Parameters
    ----------
    records : sequence of Record
        A journal of a run in which the callback KnowledgeRatios took part.
    rule : {"counted", "released"}
        Whether P(y, a, b) are the counts of test images, or modelled as the authors' program does: answers of either
        moment independent of each other given y, but for how often both are right. With 10,000 test images and 100
        classes most cells hold no image, and counting overestimates both ratios.
    """
    return [(at, found.lost / found.before) for at, found in _informations(records, rule) if found.before > EPS]


def kgr(records: Sequence[Record], rule: Rule = "counted") -> Points:
    """Knowledge gain ratio at each moment that answers were journalled; parameters as `klr`."""
    pairs = [(at, found.gained, found.possible - found.before) for at, found in _informations(records, rule)]
    return [(at, gained / left) for at, gained, left in pairs if left > EPS]


class Information(NamedTuple):
    """About the class of a test image, in nats."""

    before: float  # I(y; a)
    lost: float  # I(y; a | b)
    gained: float  # I(y; b | a)
    possible: float  # log C2


def _informations(records: Sequence[Record], rule: Rule) -> list[tuple[int, Information]]:
    moments = [record for record in records if isinstance(record, Answers)]
    joint = {"counted": _count, "released": _model}[rule]
    return [(now.at, _information(joint(then, now), len(now.known))) for then, now in pairwise([None, *moments]) if now]


class Entropies(NamedTuple):
    """Entropies of the joint distribution P(y, a, b) and its marginals, in nats."""

    y: float
    a: float
    b: float
    ya: float
    yb: float
    ab: float
    yab: float


def _information(h: Entropies, met: int) -> Information:
    lost, gained = h.yb + h.ab - h.b - h.yab, h.ya + h.ab - h.a - h.yab
    return Information(h.y + h.a - h.ya, max(lost, 0.0), max(gained, 0.0), float(np.log(met)))


def _count(then: Answers | None, now: Answers) -> Entropies:
    y, b, classes = now.targets, now.chosen, len(now.total)
    a = then.chosen if then else np.zeros_like(b)

    def entropy(*axes: NDArray[np.int64]) -> float:
        code = sum(axis * classes**place for place, axis in enumerate(axes))
        return _entropy(np.unique(code, return_counts=True)[1] / len(y))

    return Entropies(entropy(y), entropy(a), entropy(b), entropy(y, a), entropy(y, b), entropy(a, b), entropy(y, a, b))


def _model(then: Answers | None, now: Answers) -> Entropies:
    """Of class i, shares of images right at both moments, at one or at none; wrong answers come as all answers do.

    P(i, a, b) = prior_i none_i u_i(a) v_i(b) with u_i(a) = P(a) / (1 - P(a = i)) for a != i, v_i likewise, and so on
    for the cells of right answers.
    """
    y, total = now.targets, np.array(now.total, dtype=np.float64)
    prior = total / total.sum()
    right2 = now.chosen == y
    right1 = then.chosen == y if then else np.zeros_like(right2)

    def mass(images: NDArray[np.bool_]) -> Floats:
        return np.bincount(y, images, len(total)) / len(y)

    both, only1, only2 = mass(right1 & right2), mass(right1 & ~right2), mass(~right1 & right2)
    none = np.maximum(prior - both - only1 - only2, 0)
    u = _wrong(then.chosen, len(total)) if then else np.ones((len(total), 1))  # (y, a): one answer before the first
    v = _wrong(now.chosen, len(total))  # (y, b)
    of_u, of_v = u.sum(1), v.sum(1)
    ab = (none[:, None] * u).T @ v + (only2[:, None] * u).T @ np.eye(len(total))
    ya, yb = (none * of_v + only2)[:, None] * u, (none * of_u + only1)[:, None] * v
    yb += np.diag(only2 * of_u + both)
    if then:
        ab += only1[:, None] * v + np.diag(both)
        ya += np.diag(only1 * of_v + both)
    wrong = none @ (of_u * _sums(v) + of_v * _sums(u)) + _logs(none) @ (of_u * of_v)  # sum of x log x over these cells
    right = _logs(only1[:, None] * v).sum() + _logs(only2[:, None] * u).sum() + _logs(both).sum()
    return Entropies(
        y=_entropy(prior),
        a=_entropy(ab.sum(1)),
        b=_entropy(ab.sum(0)),
        ya=_entropy(ya),
        yb=_entropy(yb),
        ab=_entropy(ab),
        yab=-float(wrong + right),
    )


def _wrong(answers: NDArray[np.int64], classes: int) -> Floats:
    """(classes, classes): how wrong answers to each class are distributed; 0 for the class itself."""
    share = np.bincount(answers, minlength=classes) / len(answers)
    table = share / np.maximum(1 - share, EPS)[:, None]
    np.fill_diagonal(table, 0)
    return table


def _sums(table: Floats) -> Floats:
    return np.asarray(_logs(table).sum(axis=1))


def _logs(values: Floats) -> Floats:
    """x log x, 0 at 0."""
    return np.asarray(values * np.log(np.where(values > 0, values, 1)))


def _entropy(values: Floats) -> float:
    return -float(_logs(values).sum())


CURVES: dict[str, Callable[[Sequence[Record]], Points]] = {  # values along a run; a table shows the last
    "balanced_acc": balanced_acc,
    "forgetting": forgetting,
    "min_acc": min_acc,
    "wc_acc": wc_acc,
    "worst_class": worst_class,
    "klr": klr,
    "kgr": kgr,
    "klr_released": partial(klr, rule="released"),
    "kgr_released": partial(kgr, rule="released"),
}
CLASS_METRICS: dict[str, Callable[[Sequence[Record]], float | None]] = {  # of the whole curve
    "aaa": aaa,
    "wf10": lambda records: windowed_change(records, 10, 1),
    "wf100": lambda records: windowed_change(records, 100, 1),
    "wp10": lambda records: windowed_change(records, 10, -1),
    "wp100": lambda records: windowed_change(records, 100, -1),
}
RESERVED = (  # names of metrics of the package
    *(field.name for field in fields(Metrics)),
    *(*CURVES, *CLASS_METRICS),
    *("compute", "per_compute", "bytes"),
)
