"""KLR and KGR: how much of what a learner knew it lost, and of what it could learn it gained, between two moments.

y is the class of a test image, a the answer at one moment and b at the next, over all test images, those of classes not
met yet too. With the mutual information I, N classes of which C2 are met at the second moment:

    KLR = I(y; a | b) / I(y; a)        KGR = I(y; b | a) / (log C2 - I(y; a))

The first moment has no answer before it: I(y; a) is 0 there, and there is a KGR and no KLR. The mean of each over a
run (`klr:mean`, `kgr:mean`) is what the paper reports.

Koh et al., "Online Boundary-Free Continual Learning by Scheduled Data Prior", ICLR 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iblurry.experiment.class_metrics import Points
from iblurry.experiment.journal import Answers, Record

Rule = Literal["counted", "released"]
Floats = NDArray[np.float64]


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


EPS = 1e-9  # nats: less is none


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
