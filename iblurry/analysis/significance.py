"""Two methods compared seed by seed: how often one is ahead, by how much, and what so few seeds can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from iblurry.analysis.describe import is_bound
from iblurry.analysis.table import Better, Table
from iblurry.errors import InputError, UnknownNameError

LEVEL = 0.05  # the usual one of tests; intervals hold 1 - LEVEL
MOST = 24  # seeds: the exact test looks at all 2^n signs


@dataclass(frozen=True)
class PairedComparison:
    """Two rows of a table in one column for one metric: differences first minus second over the seeds both have."""

    column: str
    metric: str
    first: str
    second: str
    n: int
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    ahead: int  # seeds on which the first is better
    even: int  # seeds on which both are equal
    mean: float | None  # None without a seed in common
    std: float | None  # by n - 1; None below two seeds, as are the interval and p
    interval: tuple[float, float] | None  # of the mean, 95 %, by Student's t
    p: float | None  # two-sided, of the exact sign-flip test

    def __str__(self) -> str:
        return f"{self.first} over {self.second}: {self.describe()}"

    def describe(self) -> str:
        """Say how often the first is ahead, by how much, and what so few seeds can tell."""
        if self.mean is None:
            return "no seed in common"
        words = f"ahead on {self.ahead} of {_seeds(self.n)}" + (f", even on {self.even}" if self.even else "")
        words += f", {self.mean:+z.2f}"
        if self.std is None or self.interval is None or self.p is None:
            return f"{words} points; one seed has no interval"
        low, high = self.interval
        words += f" ± {self.std:.2f} points, 95 % t interval [{low:+z.2f}, {high:+z.2f}], sign-flip p {self.p:.2g}"
        at_its_least = self.p <= least_p(self.n)  # both are whole numbers of 2^-n
        return f"{words}; {self.n} seeds cannot tell more" if at_its_least and self.p > LEVEL else words

    def to_json(self) -> dict[str, Any]:
        """Every number, and the sentence."""
        return asdict(self) | {"words": str(self)}


def compare_rows(table: Table, against: str | None = None) -> list[PairedComparison]:
    """Compare, for each column and metric, the best row with each other, or each other with the row `against`.

    Rows on other orders than those of the reference are left out.
    """
    if against is not None and against not in table.rows:
        raise UnknownNameError("row of the table", against, table.rows)
    numbers = {
        (column, metric): table.by_seed(column, metric.name) for column in table.columns for metric in table.metrics
    }
    finished = [row for row in table.rows if any(row in rows for rows in numbers.values())]
    if against is not None and against not in finished:
        others = f"; name one that has: {', '.join(finished)}" if finished else ", nor has any other row; run it first"
        raise InputError(f"--against {against}: it has no finished run here{others}.")
    made = []
    for (column, metric), rows in numbers.items():
        if metric.better is None or not rows or (against is not None and against not in rows):
            continue
        reference = against or _best(rows, metric.better)
        is_elsewhere = {row: (row, column) in table.other_orders for row in rows}
        for other in (row for row in rows if row != reference and is_elsewhere[row] == is_elsewhere[reference]):
            first, second = (other, reference) if against else (reference, other)
            lower = metric.better is min
            made.append(compare_seeds(rows[first], rows[second], (column, metric.name, first, second), lower=lower))
    return made


def compare_seeds(
    first: Mapping[int, float],
    second: Mapping[int, float],
    names: tuple[str, str, str, str] = ("", "", "first", "second"),
    *,
    lower: bool = False,
) -> PairedComparison:
    """Compare numbers by seed with numbers by seed; `lower` says that less is better.

    `names` are the column, the metric and the two rows.

    >>> str(compare_seeds({1: 70.0, 2: 71.0, 3: 75.0}, {1: 57.0, 2: 57.0, 3: 61.0}))[:60]
    'first over second: ahead on 3 of 3 seeds, +13.67 ± 0.58 poin'
    """
    seeds = tuple(seed for seed in first if seed in second)
    differences = np.array([first[seed] - second[seed] for seed in seeds])
    values, has_spread = tuple(differences.tolist()), len(seeds) > 1
    return PairedComparison(
        *names,
        len(seeds),
        seeds,
        values,
        ahead=int((differences < 0).sum() if lower else (differences > 0).sum()),
        even=int((differences == 0).sum()),
        mean=float(differences.mean()) if seeds else None,
        std=float(differences.std(ddof=1)) if has_spread else None,
        interval=t_interval(values) if has_spread else None,
        p=sign_flip_p(values) if has_spread else None,
    )


def t_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Mean ± t s / √n with Student's t of n - 1 degrees of freedom: 95 % if the differences are about normal."""
    from scipy.special import stdtrit

    values = np.array(differences)
    half = float(stdtrit(len(values) - 1, 1 - LEVEL / 2) * values.std(ddof=1) / math.sqrt(len(values)))
    return float(values.mean()) - half, float(values.mean()) + half


def sign_flip_p(differences: Sequence[float]) -> float:
    """The share of all 2^n ways to sign the differences whose mean is as far from 0, or farther.

    Exact if neither method is better: which of the two a difference favours is then a coin's throw, seed by seed.

    >>> sign_flip_p([13.0, 14.0, 14.0])
    0.25
    """
    if len(differences) > MOST:
        raise InputError(f"The exact test takes up to {MOST} seeds, not {len(differences)}; name fewer with --seeds.")
    sums = np.zeros(1)
    for one in differences:
        sums = np.concatenate([sums + one, sums - one])
    slack = 1e-9 * sum(map(abs, differences))  # equal sums differ in their last bits
    return float((np.abs(sums) >= abs(sum(differences)) - slack).mean())


def least_p(seeds: int) -> float:
    """The smallest two-sided p that so many seeds can give: all on one side, and the mirror image."""
    return min(1.0, 2.0 ** (1 - seeds))


def caveats(made: Sequence[PairedComparison]) -> list[str]:
    """What the numbers mean and what they cannot tell, in sentences."""
    if not made:
        return ["There is no pair to compare: fewer than two rows have finished runs."]
    counts = sorted({pair.n for pair in made} - {0})
    needed = next(n for n in range(1, MOST) if least_p(n) <= LEVEL)
    notes = [
        f"The smallest two-sided p of {_seeds(n)} by the sign-flip test is {least_p(n):.2g}: {_seeds(n)} cannot reach "
        f"{LEVEL:g} by that test, whatever the methods do; {needed} seeds can ({least_p(needed):.2g})."
        for n in counts
        if least_p(n) > LEVEL
    ]
    about = (
        "Differences are paired by seed, mean ± sample standard deviation (n - 1). The t interval holds 95 %, with "
        "n - 1 degrees of freedom, if they are about normal, which few seeds cannot show. Nothing is corrected for how "
        "many pairs there are, nor for a row being picked as the best."
    )
    return [about, *notes]


def _seeds(n: int) -> str:
    return f"{n} seed" if n == 1 else f"{n} seeds"


def _best(rows: Mapping[str, Mapping[int, float]], better: Better) -> str:
    contenders = {row: values for row, values in rows.items() if not is_bound(row)} or rows
    means = {row: float(np.mean(list(values.values()))) for row, values in contenders.items()}
    wanted = better(means.values())
    return next(row for row, mean in means.items() if mean == wanted)
