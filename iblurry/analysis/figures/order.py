"""Draws an order: how many samples of each class come in each task, after Figure 1 of the i-Blurry paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from iblurry.analysis.figures.style import escape_math, format_sample_axis, mark_tasks, open_figure
from iblurry.data.dataset import Dataset
from iblurry.streams.order import Order

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Two hues that every kind of colour vision tells apart (after Okabe and Ito), from light for few to dark for many.
_RAMPS = {"disjoint": ("#fdf0e4", "#eb9148", "#9c4400"), "blurry": ("#e4f0f8", "#56a0d3", "#004a78")}
_NONE = "#f4f4f4"  # tiles without a sample
_READABLE = 40  # rows: more class names than that are too small to read
WINDOWS = 60  # tiles from left to right where there are no tasks


def draw_order(order: Order, dataset: Dataset, path: Path | str, *, in_tasks: bool = True) -> Figure:
    """Classes from top to bottom in label order, the stream from left to right, each tile shaded by its count.

    Disjoint classes are orange and above, blurry ones blue and below, with the most of each in bold. Without
    `in_tasks` the tiles are windows of equal length, which show when each class comes.
    """
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.ticker import MaxNLocator

    order = order if in_tasks else order.in_windows(WINDOWS)
    counts, roles = order.counts(dataset.train.labels), np.array(order.roles)
    norm = PowerNorm(0.5, vmin=0, vmax=int(counts.max()))  # a root: the few of a class still show
    many = len(roles) > _READABLE
    lines: dict[str, Any] = {"edgecolor": "face"} if many or not in_tasks else {"edgecolor": "white", "linewidth": 1}
    starts, ends = np.array([0, *order.ends[:-1]]), np.array(order.ends)
    shown = [role for role in _RAMPS if role in order.roles]
    heights = [int((roles == role).sum()) for role in shown]
    with open_figure(path, min(max(0.24 * len(roles), 1.8), 6) + 0.8) as figure:
        panels = figure.subplots(len(shown), sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        for axes, role, height in zip(panels, shown, heights, strict=True):
            rows = np.flatnonzero(roles == role)
            ramp = LinearSegmentedColormap.from_list(role, _RAMPS[role]).with_extremes(bad=_NONE)
            tiles = np.ma.masked_equal(counts[rows], 0)
            mesh = axes.pcolormesh([0, *ends], np.arange(height + 1), tiles, cmap=ramp, norm=norm, **lines)
            axes.invert_yaxis()
            axes.tick_params(axis="y", length=0)
            axes.spines[:].set_visible(False)
            if many:
                axes.set(yticks=[], ylabel=f"{height} {role} classes" if in_tasks else f"{height} classes")
            else:
                names = [escape_math(dataset.classes[order.classes[row]]) for row in rows]
                axes.set_yticks(np.arange(height) + 0.5, names)
            for row, task in zip(*np.nonzero(counts[rows]), strict=True) if in_tasks and not many else ():
                if ends[task] - starts[task] > 0.07 * len(order):  # else there is no room for it
                    count = int(counts[rows][row, task])
                    look = {"color": "white" if norm(count) > 0.6 else "#262626", "ha": "center", "va": "center"}
                    weight = "bold" if task == counts[rows][row].argmax() else "normal"
                    middle = (starts[task] + ends[task]) / 2
                    axes.text(middle, row + 0.5, f"{count:,}", size=7, weight=weight, **look)
            scale = figure.colorbar(mesh, ax=axes, pad=0.01, aspect=30, ticks=MaxNLocator(4, integer=True))
            scale.outline.set_visible(False)
            scale.set_label(role if in_tasks else "")
        if in_tasks:
            mark_tasks(panels[0], [order.ends])
        panels[-1].set(xlim=(0, len(order)), xlabel="samples seen")
        format_sample_axis(panels[-1])
        unit = "a task" if in_tasks else f"{len(order.tasks[0]):,} samples; there are no task boundaries"
        figure.suptitle(f"samples of each class in {unit}", fontsize=9)
    return figure
