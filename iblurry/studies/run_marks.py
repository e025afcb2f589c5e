"""Marks on an axis of samples: where tasks end, and where classes were met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sample_axis(axes: Axes, *, narrow: bool = False) -> None:
    """Samples seen, in thousands; on a narrow panel few of them, so that none runs into the next."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if narrow:
        axes.xaxis.set_major_locator(MaxNLocator(3))


def mark_tasks(axes: Axes, ends: Sequence[Sequence[int]], *, word: str = "task ") -> None:
    """Dashed lines where tasks end and their names above, and the axis as long as the stream; `ends` are each run's.

    Only where all runs agree, give or take 2 % of the stream.
    """
    axes.set_xlim(0, max(run[-1] for run in ends))
    if len({len(run) for run in ends}) > 1 or len(ends[0]) == 1:
        return
    table = np.array(ends)  # (runs, tasks): classes of unequal size shift them a little
    if np.ptp(table, axis=0).max() > 0.02 * table.max():
        return
    means = table.mean(0)
    for end in means[:-1]:
        axes.axvline(end, color="0.65", linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
    every = -(-len(means) // 10)  # more than ten names would run into each other
    middles = (np.array([0, *means[:-1]]) + np.array(means)) / 2
    names = axes.secondary_xaxis("top")
    names.set_xticks(middles[::every], [f"{word}{t}" for t in range(1, len(means) + 1, every)], color="0.4", fontsize=8)
    names.tick_params(length=0, pad=1)
    names.spines["top"].set_visible(False)


def mark_arrivals(axes: Axes, at: Iterable[int]) -> None:
    """A tick on the lower edge wherever a run met a class."""
    places = sorted(set(at))
    edge = axes.get_xaxis_transform()
    axes.plot(
        places, [0.012] * len(places), "|", color="0.3", markersize=5, transform=edge, label="first sample of a class"
    )
