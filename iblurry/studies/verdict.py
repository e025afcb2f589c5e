"""The verdict on a number of ours beside the paper's: one rule, by the standard error of their difference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iblurry.studies.paper import PaperNumber
    from iblurry.studies.tables.table import MeanStd

AGREES, ABOVE, BELOW, NOT_JUDGED = "agrees", "above", "below", "not judged"
ERRORS = 2  # standard errors that two means which agree may lie apart
RULE = (  # ends any note on verdicts
    "agrees: the means are no further apart than two standard errors of their difference, by both spreads; else above "
    "or below; not judged: neither side has a spread, or the number has a warning (⚠)"
)


def standard_error(paper: PaperNumber, ours: MeanStd, n: int) -> float | None:
    """Of ours minus the paper's, in points: √(s_paper²/3 + s_ours²/n), for three seeds of the paper's and n of ours.

    A single run has no spread and is taken to vary as the other side does; None where neither side has one.
    """
    sides = [(paper.std, paper.seeds), (ours.std, n)]
    known = [std for std, _ in sides if std is not None]
    if not known:
        return None
    return math.sqrt(sum((known[0] if std is None else std) ** 2 / seeds for std, seeds in sides))


def judge(paper: PaperNumber, ours: MeanStd, n: int) -> str:
    """Whether our mean over n seeds agrees with the paper's, or lies above or below it."""
    error = standard_error(paper, ours, n)
    if error is None or paper.warning is not None:
        return NOT_JUDGED
    apart = ours.mean - paper.mean
    if abs(apart) <= ERRORS * error:
        return AGREES
    return ABOVE if apart > 0 else BELOW
