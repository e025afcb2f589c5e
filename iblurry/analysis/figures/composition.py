"""What a memory holds over time: stacked areas of rows per class."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.figures.classes import NAMED, edge_height, edge_names, first_tasks, write_names
from iblurry.analysis.figures.style import (
    TASK_COLOURS,
    add_panels,
    format_sample_axis,
    label_panels,
    mark_tasks,
    open_figure,
)
from iblurry.errors import InputError
from iblurry.experiment.journal import NewClass, Start

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHADES = (1.0, 0.55, 0.78, 0.38)  # of a task's colour, so that neighbours differ


@dataclass(frozen=True)
class MemoryComposition:
    """How many rows of a run's memory each class held over time."""

    at: Sequence[int]  # samples seen
    rows: Sequence[Sequence[int]]  # at each of them, class by class in order of exposure; as many as were known then
    classes: Sequence[str]  # in order of exposure
    met: Sequence[int]  # their first samples
    ends: Sequence[int]  # last samples of the tasks


def memory_composition(records: Sequence[Any]) -> MemoryComposition | None:
    """Reads a journal whose records of kind "held" say `at` and `rows`; None where it has none."""
    held = [record for record in records if record.kind == "held"]
    classes: list[NewClass] = [record for record in records if isinstance(record, NewClass)]
    if not held:
        return None
    return MemoryComposition(
        at=[record.at for record in held],
        rows=[record.rows for record in held],
        classes=[record.label for record in classes],
        met=[record.at for record in classes],
        ends=next(record.ends for record in records if isinstance(record, Start)),
    )


def draw_composition(memories: Mapping[str, MemoryComposition], path: Path | str, *, title: str | None = None) -> None:
    """Draw memories by their names, class upon class in order of exposure, the first at the bottom.

    A colour is the task a class was met in, its shades are the classes. Up to twenty classes are named at the edge,
    more by their tasks. The axis of rows is the same for all memories, but for those that keep the whole stream (joint
    training): beside them the others could not be read, so they have an axis of their own.
    """
    if not memories:
        raise InputError("There are no memories to draw; give at least one.")
    across = min(2, len(memories))
    names = [edge_names(memory.classes, memory.met, memory.ends) for memory in memories.values()]
    high = max(3.0 if across == 1 else 2.0, edge_height(names))
    with open_figure(path, 0.5 + high * -(-len(memories) // across)) as figure:
        panels = add_panels(figure, len(memories), columns=across)
        limits = _limits(list(memories.values()))
        for place, (axes, (name, memory)) in enumerate(zip(panels, memories.items(), strict=True)):
            _draw(axes, memory)
            mark_tasks(axes, [memory.ends], word="task " if across == 1 and len(memory.ends) <= 6 else "")
            format_sample_axis(axes, narrow=across > 1)
            apart = " (keeps every sample; axis of its own)" if limits[place] != min(limits) else ""
            axes.set_title(textwrap.fill(name + apart, 90 // across - 10), fontsize=9, parse_math=False)
            axes.set_ylim(0, limits[place])
            axes.tick_params(labelleft=limits[place] != limits[place - place % across] or place % across == 0)
        for axes, memory, named in zip(panels, memories.values(), names, strict=True):
            edges = [0, *rows_table(memory)[:, -1].cumsum().tolist()]  # of the areas at the end
            write_names(axes, named, edges, inches=high, left=False)
        label_panels(figure, panels, across, x="samples seen", y="rows of the memory", title=title)


def rows_table(memory: MemoryComposition) -> NDArray[np.int64]:
    """Rows of each class (rows, in order of exposure) at each time (columns); 0 before a class was met."""
    full = np.zeros((len(memory.classes), len(memory.at)), dtype=np.int64)
    for column, held in enumerate(memory.rows):
        full[: len(held), column] = held
    return full


def _limits(memories: Sequence[MemoryComposition]) -> list[int]:
    """The upper end of each memory's axis: the most rows of all that keep the whole stream, or of all that do not."""
    whole = [sum(memory.rows[-1]) >= memory.at[-1] for memory in memories]
    most = [max(map(sum, memory.rows)) for memory in memories]
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


def _draw(axes: Axes, memory: MemoryComposition) -> None:
    few = len(memory.classes) <= NAMED
    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4} if few else {"linewidth": 0, "rasterized": True}
    axes.stackplot(memory.at, rows_table(memory), colors=class_colours(first_tasks(memory.met, memory.ends)), **edge)
