"""Class by class: accuracy over time as a heat map, and beside it what each class lost until the end."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.figures.classes import ClassAccuracy, edge_height, edge_names, first_tasks, write_names
from iblurry.analysis.figures.style import TASK_COLOURS, add_grid, format_sample_axis, mark_tasks, open_figure
from iblurry.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

NOTHING = "0.9"  # where a class is not known yet, or the method was not asked
ONCE = 0.04  # of the stream: how wide the answers of a method are drawn that is asked only at its end


def draw_forgetting(runs: Mapping[str, ClassAccuracy], path: Path | str, *, title: str | None = None) -> None:
    """Draw single runs by their names: classes from top to bottom in order of exposure, the stream from left to right.

    The bars are points of accuracy lost since a class's best earlier task end; the dashed line is their mean, F_last.
    """
    if not runs:
        raise InputError("There are no runs to draw; give at least one.")
    across = min(2, len(runs))
    down = -(-len(runs) // across)
    names = [edge_names(run.classes, run.met, run.ends) for run in runs.values()]
    high = max(2.9 if across == 1 else 2.0, edge_height(names))
    with open_figure(path, 1.0 + high * down) as figure:
        table = figure.subplots(down, 2 * across, squeeze=False, width_ratios=[3, 1] * across)
        pairs = table.reshape(-1, 2)
        limits = _limits([run.lost for run in runs.values()])
        for place, (name, run) in enumerate(runs.items()):
            heat, strip = pairs[place]
            mesh = _draw_heat(heat, run, narrow=across > 1)
            write_names(heat, names[place], range(len(run.classes) + 1), inches=high, left=True)
            _draw_lost(strip, run)
            strip.set_xlim(*limits)
            heat.set_title(textwrap.fill(name, 80 // across - 8), fontsize=9, parse_math=False)
            if place + across >= len(runs):
                heat.set_xlabel("samples seen")
                strip.set_xlabel("points lost")
        for axes in pairs[len(runs) :].flat:
            axes.remove()
        shown = list(pairs[: len(runs)].flat)
        scale = figure.colorbar(mesh, ax=shown, location="bottom", shrink=0.6, aspect=60, fraction=0.06, pad=0.1 / down)
        scale.set_label("accuracy of a class (%)")
        if title is not None:
            figure.suptitle(title, fontsize=10, parse_math=False)


def _draw_heat(axes: Axes, run: ClassAccuracy, *, narrow: bool) -> QuadMesh:
    """A tile per class and evaluation; a white line parts classes that were met in different tasks."""
    from matplotlib import colormaps

    axes.set_facecolor(NOTHING)
    first = max(0.0, run.at[0] - ONCE * run.ends[-1]) if len(run.at) == 1 else 0.0
    if first:
        place: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes, "zorder": 5}
        ground = {"facecolor": NOTHING, "edgecolor": "none"}
        axes.text(0.5, 0.5, "asked at the end only", fontsize=8, color="0.4", bbox=ground, **place)
    mesh = axes.pcolormesh(
        np.array([first, *run.at]),  # an answer stands for the samples since the evaluation before
        np.arange(len(run.classes) + 1),
        np.ma.masked_invalid(run.accuracy),
        cmap=colormaps["cividis"],  # even in lightness and for any colour vision
        vmin=0,
        vmax=100,
        rasterized=True,  # a picture of its own in SVG and PDF, else thousands of tiles
    )
    mark_tasks(axes, [run.ends], word="" if narrow or len(run.ends) > 6 else "task ")
    format_sample_axis(axes, narrow=narrow)
    for row in np.flatnonzero(np.diff(first_tasks(run.met, run.ends))) + 1:
        axes.axhline(float(row), color="white", linewidth=0.6, zorder=4)
    axes.set(ylim=(len(run.classes), 0), yticks=[])
    return mesh


def _draw_lost(axes: Axes, run: ClassAccuracy) -> None:
    """Bars beside the rows of the heat map, in the colour of the task a class was met in."""
    tasks = first_tasks(run.met, run.ends)
    order = list(dict.fromkeys(tasks))
    shades = [TASK_COLOURS[order.index(task) % len(TASK_COLOURS)] for task in tasks]
    rows = np.arange(len(run.classes)) + 0.5
    axes.barh(rows, np.nan_to_num(run.lost), 0.8, color=shades, zorder=2)
    for row in rows[np.isnan(run.lost)]:
        axes.plot(0, row, "x", color="0.5", markersize=2.5, markeredgewidth=0.6, zorder=3)
    if not np.isnan(run.lost).all():
        mean = float(np.nanmean(run.lost))
        axes.set_title(rf"$F_{{\mathrm{{last}}}}$ {mean:z.1f}", fontsize=8)
        axes.axvline(mean, color="black", linewidth=0.9, linestyle=(0, (3, 2)), zorder=3)
    elif len(run.ends) == 1:
        axes.set_title(r"$F_{\mathrm{last}}$ –: no task boundary", fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8, zorder=3)
    axes.set(ylim=(len(run.classes), 0), yticks=[])
    axes.spines["left"].set_visible(False)
    add_grid(axes, "x")


def _limits(lost: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """The same for all runs: from zero, or from the most that a class gained."""
    known = np.concatenate([np.zeros(1), *[one[~np.isnan(one)] for one in lost]])
    low, high = float(known.min()), float(known.max())
    room = 0.05 * max(high - low, 1.0)
    return low - room, high + room
