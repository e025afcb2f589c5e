"""The verdict on a number of ours beside the paper's: one rule, by the standard error of their difference."""

from __future__ import annotations

import math
from dataclasses import dataclass

from iblurry.analysis.metrics import MeanStd

PAPER_SEEDS = 3  # wherever the paper prints a spread
AGREES, ABOVE, BELOW, NOT_JUDGED = "agrees", "above", "below", "not judged"
ERRORS = 2  # standard errors that two means which agree may lie apart
RULE = (  # ends any note on verdicts
    "agrees: the means are no further apart than two standard errors of their difference, by both spreads; else above "
    "or below; not judged: neither side has a spread, or the number has a warning (⚠)"
)


@dataclass(frozen=True)
class PaperNumber(MeanStd):
    """A cell of one of the paper's tables: mean over three seeds in percent, and its spread; None of one seed."""

    tables: tuple[int, ...]  # that print it
    warning: str | None = None  # why it should not be a target: probably a copy error

    @property
    def seeds(self) -> int:
        """Runs that the mean is over."""
        return 1 if self.std is None else PAPER_SEEDS


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
