"""The figure of a comparison: accuracy to samples seen, one line per method, with the spread over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import InputError
from iblurry.experiment.journal import NewClass, Query, Record, Start, TaskEnd
from iblurry.experiment.metrics import a_auc, a_last, curve
from iblurry.studies.run_marks import mark_arrivals, mark_tasks, sample_axis
from iblurry.studies.run_style import OPEN, legend_below, look, plain, sheet, side_by_side

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Run = Sequence[Record]

MARKERS_PER_LINE = 12


def curves(
    groups: Mapping[str, Sequence[Run]], path: Path | str, *, title: str | None = None, arrivals: bool = False
) -> None:
    """Draw the runs of each method to a PNG, SVG or PDF file; `arrivals` marks where classes were met.

    A line is the mean over seeds at the query points they share, its band one sample standard deviation either way.
    Open markers at the ends of tasks: the answers after a boundary, where they are not those of the query before it.
    A method that answers only once, when the stream has ended, is a level line.
    """
    if not groups:
        raise InputError("There are no runs to draw; give at least one.")
    columns = side_by_side(26 + max(map(len, groups)))
    legend_rows = -(-(len(groups) + arrivals + 1) // columns)
    with sheet(path, 3.5 + 0.18 * legend_rows) as figure:
        axes = figure.add_subplot()
        draw_curves(axes, dict(enumerate(groups.items())), arrivals=arrivals)
        keep_percent(axes)
        axes.set_xlabel("samples seen")
        axes.set_ylabel("accuracy on classes met so far (%)")
        if title is not None:
            axes.set_title(title, fontsize=10, parse_math=False)
        legend_below(figure, columns)


def draw_curves(
    axes: Axes,
    groups: Mapping[int, tuple[str, Sequence[Run]]],
    *,
    arrivals: bool = False,
    areas: bool = True,
    word: str = "task ",
) -> None:
    """Methods and their runs on one pair of axes, by the numbers of their looks; `areas` says A_AUC in the legend."""
    for number, (method, runs) in groups.items():
        _draw_method(axes, number, method, runs, areas)
    everything = [run for _, runs in groups.values() for run in runs]
    boundaries = [_draw_task_ends(axes, number, runs) for number, (_, runs) in groups.items()]
    if any(boundaries):
        axes.plot([], [], "o", color="0.4", label="after the end of a task", **OPEN)
    mark_tasks(axes, [record.ends for run in everything for record in run if isinstance(record, Start)], word=word)
    if arrivals:
        mark_arrivals(axes, [record.at for run in everything for record in run if isinstance(record, NewClass)])
    sample_axis(axes)
    axes.grid(axis="y", color="0.92", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def keep_percent(axes: Axes) -> None:
    """Nothing below 0 or above 100; once everything is drawn, for the limits stay as they are from then on."""
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0), min(high, 100))


def shared_curve(
    method: str, runs: Sequence[Run]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64] | None]:
    """Where all runs were queried, their mean accuracy there, and its sample standard deviation (None for one run)."""
    measured = [curve(run) for run in runs]
    at = reduce(np.intersect1d, [n for n, _ in measured]) if measured else np.array([], dtype=np.int64)
    if not len(at):
        raise InputError(f"The runs of {method!r} share no query point; let them run on, or query them equally often.")
    table = np.array([accuracy[np.isin(n, at)] for n, accuracy in measured])  # (runs, points)
    return at, table.mean(axis=0), table.std(axis=0, ddof=1) if len(runs) > 1 else None


def _draw_method(axes: Axes, number: int, method: str, runs: Sequence[Run], areas: bool) -> None:
    mine = look(number)
    if not any(isinstance(record, Query) for run in runs for record in run) and all(map(a_last, runs)):
        finals = [100 * (a_last(run) or 0.0) for run in runs]
        level = axes.axhline(float(np.mean(finals)), color=mine.colour, linestyle=mine.line, linewidth=1.0)
        level.set_label(_label(method, r"A_{\mathrm{last}}", finals) if areas else plain(method))
        return
    at, mean, std = shared_curve(method, runs)
    found = [100 * area for run in runs if (area := a_auc(run)) is not None]
    step = max(1, round(len(at) / MARKERS_PER_LINE))
    axes.plot(
        at,
        100 * mean,
        color=mine.colour,
        linestyle=mine.line,
        linewidth=1.3,
        marker=mine.marker,
        markersize=4,
        markeredgecolor="white",
        markeredgewidth=0.5,
        clip_on=False,  # the last marker lies on the edge
        markevery=(
            (number * step // 3) % step,
            step,
        ),  # staggered, so that markers of near lines do not cover each other
        label=_label(method, r"A_{\mathrm{AUC}}", found) if areas else plain(method),
        zorder=3,
    )
    if std is not None:
        axes.fill_between(
            at, 100 * (mean - std), 100 * (mean + std), color=mine.colour, alpha=0.18, linewidth=0, zorder=2
        )


def _draw_task_ends(axes: Axes, number: int, runs: Sequence[Run]) -> bool:
    """What a boundary changed, the mean over seeds; whether it changed anything."""
    gains: dict[int, list[tuple[float, float]]] = {}  # by task: samples seen and accuracy
    changed = False
    for run in runs:
        queries = {record.at: record.accuracy for record in run if isinstance(record, Query)}
        for end in (record for record in run if isinstance(record, TaskEnd)):
            gains.setdefault(end.task, []).append((end.at, 100 * end.accuracy))
            changed |= abs(end.accuracy - queries.get(end.at, end.accuracy)) > 0.01
    if changed:
        points = np.array([np.mean(values, axis=0) for values in gains.values()])  # (tasks, 2)
        mine = look(number)
        axes.plot(*points.T, mine.marker, color=mine.colour, clip_on=False, zorder=4, **OPEN)
    return changed


def _label(method: str, symbol: str, values: Sequence[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return rf"{plain(method)}  (${symbol}$ {np.mean(values):.1f}{spread})"
