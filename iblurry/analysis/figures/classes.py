"""Classes one by one: accuracy over time as a heat map beside what each class lost, and what a memory holds of them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.figures.style import (
    ACROSS,
    TASK_COLOURS,
    add_grid,
    add_panels,
    format_sample_axis,
    label_panels,
    mark_tasks,
    open_figure,
)
from iblurry.errors import InputError
from iblurry.experiment.journal import Evaluation, Held, NewClass, Query, Record, Start, TaskEnd
from iblurry.experiment.metrics import accuracy_table, class_accuracy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

NAMED = 20  # classes that are named one by one
_LINE = 0.115  # inches between two names
_NOTHING = "0.9"  # grey where a class is not known yet, or the method was not asked
_ONCE = 0.04  # of the stream: how wide the answers of a method are drawn that is asked only at its end
_SHADES = (1.0, 0.55, 0.78, 0.38)  # of a task's colour, so that neighbours differ


@dataclass(frozen=True)
class ClassSeries:
    """Numbers of a run class by class over time."""

    classes: Sequence[str]  # in order of exposure
    met: Sequence[int]  # their first samples
    ends: Sequence[int]  # last samples of the tasks
    at: Sequence[int]  # samples seen at each number
    table: NDArray[np.float64]  # (classes, numbers)

    @property
    def tasks(self) -> list[int]:
        """The task, from 0, that each class was met in."""
        return [int(task) for task in np.searchsorted(self.ends, self.met)]


def class_accuracies(records: Sequence[Record]) -> ClassSeries:
    """Read the accuracy of each class (percent) from a run's journal; not a number before a class was met."""
    known = find_evaluations(records)
    return _class_series(records, known, lambda classes: 100 * accuracy_table(known, classes))


def memory_rows(records: Sequence[Record]) -> ClassSeries:
    """Read from a run's journal how many rows of the memory each class held; 0 before it was met."""
    held = [record for record in records if isinstance(record, Held)]

    def table(classes: int) -> NDArray[np.float64]:
        full = np.zeros((classes, len(held)))
        for column, record in enumerate(held):
            full[: len(record.rows), column] = record.rows
        return full

    return _class_series(records, held, table)


def _class_series(
    records: Sequence[Record], known: Sequence[Evaluation | Held], table: Callable[[int], NDArray[np.float64]]
) -> ClassSeries:
    classes = [record for record in records if isinstance(record, NewClass)]
    return ClassSeries(
        classes=[record.label for record in classes],
        met=[record.at for record in classes],
        ends=next(record.ends for record in records if isinstance(record, Start)),
        at=[record.at for record in known],
        table=table(len(classes)),
    )


def find_evaluations(records: Sequence[Record]) -> Sequence[Evaluation]:
    """The points of a curve; the ends of tasks where a method is not asked in between."""
    asked = [record for record in records if isinstance(record, Query)]
    return asked or [record for record in records if isinstance(record, TaskEnd)]


def points_lost(records: Sequence[Record], classes: int) -> NDArray[np.float64]:
    """Points of each class from its best earlier task end to the last one, as F_last counts them: its mean is F_last.

    Not a number for a class that was never right before the last task.
    """
    accuracy = 100 * class_accuracy(records)  # (task ends, classes)
    found = np.full(classes, np.nan)
    if len(accuracy) > 1:
        best = accuracy[:-1].max(axis=0)
        found[: accuracy.shape[1]] = np.where(best > 0, best - accuracy[-1], np.nan)
    return found


def _edge_names(run: ClassSeries) -> list[tuple[str, int, int]]:
    """What to write, and the positions of the classes it stands for: from, and up to."""
    if len(run.classes) <= NAMED:
        return [(name, number, number + 1) for number, name in enumerate(run.classes)]
    found, start = [], 0
    for task, group in groupby(run.tasks):
        size = len(list(group))
        found.append((f"task {task + 1}: {size} {'classes' if size > 1 else 'class'}", start, start + size))
        start += size
    return found


def _edge_height(names: Iterable[Sequence[object]]) -> float:
    """Inches that panels with these names at their edges need, their own titles and ticks included."""
    return 0.7 + _LINE * max(map(len, names))


def _write_names(
    axes: Axes, names: Sequence[tuple[str, int, int]], edges: Sequence[float], *, inches: float, left: bool
) -> None:
    """Writes `_edge_names` beside the axes, whose panel is so many inches high; class i lies from edges[i] to the next.

    A thin line leads to where a name had to be moved.
    """
    places = [float(edges[start] + edges[stop]) / 2 for _, start, stop in names]
    low, high = sorted(axes.get_ylim())
    moved = _spread_apart(places, (high - low) * _LINE / (inches - 0.7), high)
    sideways = axes.get_yaxis_transform()
    edge, bend, word, side = (0.0, -0.025, -0.035, "right") if left else (1.0, 1.025, 1.035, "left")
    for (text, _, _), place, beside in zip(names, places, moved, strict=True):
        axes.plot([edge, bend], [place, beside], color="0.5", linewidth=0.5, clip_on=False, transform=sideways)
        axes.text(word, beside, text, fontsize=7, va="center", ha=side, transform=sideways, parse_math=False)


def _spread_apart(places: Sequence[float], gap: float, high: float) -> list[float]:
    """Ascending places, moved so that neighbours are a gap apart and none is above `high`.

    >>> _spread_apart([1.0, 1.0, 5.0], gap=1.0, high=5.0)
    [1.0, 2.0, 5.0]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    for number in reversed(range(len(moved))):
        moved[number] = min(moved[number], high if number == len(moved) - 1 else moved[number + 1] - gap)
    return moved


def draw_forgetting(runs: Mapping[str, Sequence[Record]], path: Path | str, *, title: str | None = None) -> None:
    """Draw journals by their names: classes from top to bottom in order of exposure, the stream from left to right.

    The bars are points of accuracy lost since a class's best earlier task end; the dashed line is their mean, F_last.
    """
    if not runs:
        raise InputError("There are no runs to draw; give at least one.")
    shown = {name: class_accuracies(records) for name, records in runs.items()}
    lost = [points_lost(records, len(shown[name].classes)) for name, records in runs.items()]
    across = min(ACROSS, len(runs))
    down = -(-len(runs) // across)
    names = [_edge_names(run) for run in shown.values()]
    high = max(2.9 if across == 1 else 2.0, _edge_height(names))
    with open_figure(path, 1.0 + high * down) as figure:
        table = figure.subplots(down, 2 * across, squeeze=False, width_ratios=[3, 1] * across)
        pairs = table.reshape(-1, 2)
        limits = _lost_limits(lost)
        for place, (name, run) in enumerate(shown.items()):
            heat, strip = pairs[place]
            mesh = _draw_heat(heat, run, narrow=across > 1)
            _write_names(heat, names[place], range(len(run.classes) + 1), inches=high, left=True)
            _draw_lost(strip, run, lost[place])
            strip.set_xlim(*limits)
            heat.set_title(textwrap.fill(name, 80 // across - 8), fontsize=9, parse_math=False)
            if place + across >= len(runs):
                heat.set_xlabel("samples seen")
                strip.set_xlabel("points lost")
        for axes in pairs[len(runs) :].flat:
            axes.remove()
        beside = list(pairs[: len(runs)].flat)
        scale = figure.colorbar(
            mesh, ax=beside, location="bottom", shrink=0.6, aspect=60, fraction=0.06, pad=0.1 / down
        )
        scale.set_label("accuracy of a class (%)")
        if title is not None:
            figure.suptitle(title, fontsize=10, parse_math=False)


def _draw_heat(axes: Axes, run: ClassSeries, *, narrow: bool) -> QuadMesh:
    """A tile per class and evaluation; a white line parts classes that were met in different tasks."""
    from matplotlib import colormaps

    axes.set_facecolor(_NOTHING)
    first = max(0.0, run.at[0] - _ONCE * run.ends[-1]) if len(run.at) == 1 else 0.0
    if first:
        place: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes, "zorder": 5}
        ground = {"facecolor": _NOTHING, "edgecolor": "none"}
        axes.text(0.5, 0.5, "asked at the end only", fontsize=8, color="0.4", bbox=ground, **place)
    mesh = axes.pcolormesh(
        np.array([first, *run.at]),  # an answer stands for the samples since the evaluation before
        np.arange(len(run.classes) + 1),
        np.ma.masked_invalid(run.table),
        cmap=colormaps["cividis"],  # even in lightness and for any colour vision
        vmin=0,
        vmax=100,
        rasterized=True,  # a picture of its own in SVG and PDF, else thousands of tiles
    )
    mark_tasks(axes, [run.ends], word="" if narrow or len(run.ends) > 6 else "task ")
    format_sample_axis(axes, narrow=narrow)
    for row in np.flatnonzero(np.diff(run.tasks)) + 1:
        axes.axhline(float(row), color="white", linewidth=0.6, zorder=4)
    axes.set(ylim=(len(run.classes), 0), yticks=[])
    return mesh


def _draw_lost(axes: Axes, run: ClassSeries, lost: NDArray[np.float64]) -> None:
    """Bars beside the rows of the heat map, in the colour of the task a class was met in."""
    order = list(dict.fromkeys(run.tasks))
    shades = [TASK_COLOURS[order.index(task) % len(TASK_COLOURS)] for task in run.tasks]
    rows = np.arange(len(run.classes)) + 0.5
    axes.barh(rows, np.nan_to_num(lost), 0.8, color=shades, zorder=2)
    for row in rows[np.isnan(lost)]:
        axes.plot(0, row, "x", color="0.5", markersize=2.5, markeredgewidth=0.6, zorder=3)
    if not np.isnan(lost).all():
        mean = float(np.nanmean(lost))
        axes.set_title(rf"$F_{{\mathrm{{last}}}}$ {mean:z.1f}", fontsize=8)
        axes.axvline(mean, color="black", linewidth=0.9, linestyle=(0, (3, 2)), zorder=3)
    elif len(run.ends) == 1:
        axes.set_title(r"$F_{\mathrm{last}}$ –: no task boundary", fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8, zorder=3)
    axes.set(ylim=(len(run.classes), 0), yticks=[])
    axes.spines["left"].set_visible(False)
    add_grid(axes, "x")


def _lost_limits(lost: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """The same for all runs: from zero, or from the most that a class gained."""
    known = np.concatenate([np.zeros(1), *[one[~np.isnan(one)] for one in lost]])
    low, high = float(known.min()), float(known.max())
    room = 0.05 * max(high - low, 1.0)
    return low - room, high + room


def draw_composition(runs: Mapping[str, Sequence[Record]], path: Path | str, *, title: str | None = None) -> None:
    """Draw what memories hold, from journals by their names: class upon class, the first one met at the bottom.

    A colour is the task a class was met in, its shades are the classes. Up to twenty classes are named at the edge,
    more by their tasks. The axis of rows is the same for all memories, but for those that keep the whole stream (joint
    training): beside them the others could not be read, so they have an axis of their own.
    """
    found = {name: memory_rows(records) for name, records in runs.items()}
    memories = {name: memory for name, memory in found.items() if memory.at}
    if not memories:
        raise InputError("The journals of these runs do not say what the memory held; run them again to have it noted.")
    across = min(ACROSS, len(memories))
    names = [_edge_names(memory) for memory in memories.values()]
    high = max(3.0 if across == 1 else 2.0, _edge_height(names))
    with open_figure(path, 0.5 + high * -(-len(memories) // across)) as figure:
        panels = add_panels(figure, len(memories), columns=across)
        limits = _row_limits(list(memories.values()))
        for place, (axes, (name, memory)) in enumerate(zip(panels, memories.items(), strict=True)):
            _draw_rows(axes, memory)
            mark_tasks(axes, [memory.ends], word="task " if across == 1 and len(memory.ends) <= 6 else "")
            format_sample_axis(axes, narrow=across > 1)
            apart = " (keeps every sample; axis of its own)" if limits[place] != min(limits) else ""
            axes.set_title(textwrap.fill(name + apart, 90 // across - 10), fontsize=9, parse_math=False)
            axes.set_ylim(0, limits[place])
            axes.tick_params(labelleft=limits[place] != limits[place - place % across] or place % across == 0)
        for axes, memory, named in zip(panels, memories.values(), names, strict=True):
            edges = [0, *memory.table[:, -1].cumsum().tolist()]  # of the areas at the end
            _write_names(axes, named, edges, inches=high, left=False)
        label_panels(figure, panels, across, x="samples seen", y="rows of the memory", title=title)


def _row_limits(memories: Sequence[ClassSeries]) -> list[int]:
    """The upper end of each memory's axis: the most rows of all that keep the whole stream, or of all that do not."""
    whole = [memory.table[:, -1].sum() >= memory.at[-1] for memory in memories]
    most = [int(memory.table.sum(axis=0).max()) for memory in memories]
    return [max(rows for rows, other in zip(most, whole, strict=True) if other == own) for own in whole]


def class_colours(tasks: Sequence[int]) -> list[tuple[float, float, float]]:
    """Gives each class a colour by the task it was met in: a hue per task, shades within it."""
    from matplotlib.colors import to_rgb

    order = list(dict.fromkeys(tasks))
    found = []
    for task, group in groupby(tasks):
        hue = np.array(to_rgb(TASK_COLOURS[order.index(task) % len(TASK_COLOURS)]))
        for number, _ in enumerate(group):
            part = _SHADES[number % len(_SHADES)]
            red, green, blue = (part * hue + (1 - part)).tolist()
            found.append((red, green, blue))
    return found


def _draw_rows(axes: Axes, memory: ClassSeries) -> None:
    few = len(memory.classes) <= NAMED
    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4} if few else {"linewidth": 0, "rasterized": True}
    axes.stackplot(memory.at, memory.table, colors=class_colours(memory.tasks), **edge)
