"""Training FLOPs as an axis: where a run stood at each query, and methods as points, accuracy against FLOPs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.figures.metrics import LESS_IS_BETTER, metric_label
from iblurry.analysis.figures.style import (
    add_grid,
    add_legend_below,
    add_panels,
    all_rows,
    describe_spread,
    label_panels,
    legend_columns,
    legend_names,
    marker_looks,
    open_figure,
)
from iblurry.analysis.method_style import method_styles
from iblurry.errors import InputError
from iblurry.experiment.journal import Evaluation, Record, Spent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]  # by column and row: TFLOPs and percent per seed
ACROSS = 2  # panels beside each other
TFLOPS = "training TFLOPs, log scale"


def training_tflops_at(records: Sequence[Record], at: NDArray[np.int64]) -> NDArray[np.float64]:
    """TFLOPs spent on training when so many samples were seen: everything that is counted but queries.

    A journal counts at the ends of tasks. In between they are taken to grow with the updates that queries record, or
    with the samples where these do not tell (a method that learns in refits).
    """
    counted = [record for record in records if isinstance(record, Spent)]
    if not counted:
        raise InputError("The journals of these runs do not say what was spent; run them again to have it counted.")
    updates = {0: 0} | {record.at: record.updates for record in records if isinstance(record, Evaluation)}
    spent = [0.0, *(sum(one.flops.values()) - one.flops["queries"] for one in counted)]
    seen = [0, *(one.at for one in counted)]
    knots = [updates.get(place, 0) for place in seen]
    if (np.diff(knots) > 0).all() and all(int(place) in updates for place in at):
        return np.interp([updates[int(place)] for place in at], knots, spent) / 1e12
    return np.interp(at, seen, spent) / 1e12


def draw_flops(points: Points, path: Path, *, metric: str = "a_auc", title: str | None = None) -> None:
    """Draw each method's mean over seeds, a metric against training FLOPs; bars are one standard deviation either way.

    The grey line joins those that no other one beats with fewer FLOPs.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    rows = all_rows(points, f"numbers for {metric} and FLOPs")
    counts = {row: [len(found[row]) for found in points.values() if row in found] for row in rows}
    names, styles = legend_names(counts), method_styles(counts)
    below = legend_columns(12 + max(map(len, names.values())))
    height = (3.3 if len(points) == 1 else 2.4) * -(-len(points) // ACROSS)
    with open_figure(path, height + 0.78 + 0.18 * -(-(len(names) + 1) // below)) as figure:
        panels = add_panels(figure, len(points), columns=ACROSS, sharex=True, sharey=True)
        for axes, (column, groups) in zip(panels, points.items(), strict=True):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
            means = {row: np.mean(seeds, axis=0) for row, seeds in groups.items()}
            for row, seeds in groups.items():
                spread = np.std(seeds, axis=0, ddof=1) if len(seeds) > 1 else (None, None)
                looks: dict[str, Any] = {"color": styles[row].colour, "linestyle": "none", "label": names[row]}
                bars = {"xerr": spread[0], "yerr": spread[1], "elinewidth": 0.9, "capsize": 1.6, "zorder": 3}
                axes.errorbar(*means[row], **looks | bars | marker_looks(styles[row], size=7))
            _draw_front(axes, list(means.values()), sign=-1 if metric in LESS_IS_BETTER else 1)
            axes.set_title(column, fontsize=9, parse_math=False)
            add_grid(axes)
        label_panels(figure, panels, min(ACROSS, len(points)), x=TFLOPS, y=metric_label(metric), title=title)
        add_legend_below(figure, below, describe_spread(counts, "mean ± std"))


def undominated(points: Sequence[Any], sign: int = 1) -> list[int]:
    """Positions of the points that no other one beats with as many FLOPs (1 % more at most), by FLOPs.

    >>> undominated([(1, 50), (4, 40), (2, 60), (2.001, 65)])
    [0, 3]
    >>> undominated([(1, 50), (4, 40), (2, 60), (2.001, 65)], sign=-1)  # less is better
    [0, 1]
    """
    ranked = [(sign * value, -flops) for flops, value in points]
    best = [max(rank for rank in ranked if -rank[1] <= 1.01 * flops) for flops, _ in points]
    return sorted((i for i in range(len(points)) if ranked[i] == best[i]), key=lambda i: -ranked[i][1])


def _draw_front(axes: Axes, means: Sequence[Any], *, sign: int) -> None:
    front = [means[place] for place in undominated(means, sign)]
    if len(front) > 1:
        axes.plot(*np.transpose(front), color="0.75", linewidth=1.0, zorder=1, label="best for its FLOPs")
