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

from iblurry.errors import InputError
from iblurry.experiment.journal import NewClass, Start
from iblurry.studies.figures.classes import first_tasks
from iblurry.studies.figures.edge import NAMED, height, names, write_names
from iblurry.studies.run_marks import mark_tasks, sample_axis
from iblurry.studies.run_style import COLOURS, outer, panels, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADES = (1.0, 0.55, 0.78, 0.38)  # of a task's colour, so that neighbours differ


@dataclass(frozen=True)
class Memory:
    """Rows per class, from time to time."""

    at: Sequence[int]  # samples seen
    rows: Sequence[Sequence[int]]  # at each of them, class by class in order of exposure; as many as were known then
    classes: Sequence[str]  # in order of exposure
    met: Sequence[int]  # their first samples
    ends: Sequence[int]  # of the tasks


def memory(records: Sequence[Any]) -> Memory | None:
    """From a journal whose records of kind "held" say `at` and `rows`; None where it has none."""
    held = [record for record in records if record.kind == "held"]
    classes: list[NewClass] = [record for record in records if isinstance(record, NewClass)]
    if not held:
        return None
    return Memory(
        at=[record.at for record in held],
        rows=[record.rows for record in held],
        classes=[record.label for record in classes],
        met=[record.at for record in classes],
        ends=next(record.ends for record in records if isinstance(record, Start)),
    )


def composition(memories: Mapping[str, Memory], path: Path | str, *, title: str | None = None) -> None:
    """Draw memories by their names, class upon class in order of exposure, the first at the bottom.

    A colour is the task a class was met in, its shades are the classes. Up to twenty classes are named at the edge,
    more by their tasks.
    """
    if not memories:
        raise InputError("There are no memories to draw; give at least one.")
    across = min(2, len(memories))
    most = max(len(names(one.classes, one.met, one.ends)) for one in memories.values())
    high = max(3.0 if across == 1 else 2.0, height(most))
    with sheet(path, 0.5 + high * -(-len(memories) // across)) as figure:
        places = panels(figure, len(memories), columns=across, sharey=True)
        for axes, (name, one) in zip(places, memories.items(), strict=True):
            _draw(axes, one)
            mark_tasks(axes, [one.ends], word="task " if across == 1 and len(one.ends) <= 6 else "")
            sample_axis(axes, narrow=across > 1)
            axes.set_title(textwrap.fill(name, 90 // across - 10), fontsize=9, parse_math=False)
        places[0].set_ylim(0, max(max(map(sum, one.rows)) for one in memories.values()))
        for axes, one in zip(places, memories.values(), strict=True):
            _name_classes(axes, one, high)
        left, lowest = outer(places, across)
        for axes in left:
            axes.set_ylabel("rows of the memory")
        for axes in lowest:
            axes.set_xlabel("samples seen")
        if title is not None:
            figure.suptitle(title, fontsize=10, parse_math=False)


def table(one: Memory) -> NDArray[np.int64]:
    """Rows of each class (rows, in order of exposure) at each time (columns); 0 before a class was met."""
    full = np.zeros((len(one.classes), len(one.at)), dtype=np.int64)
    for column, held in enumerate(one.rows):
        full[: len(held), column] = held
    return full


def colours(tasks: Sequence[int]) -> list[tuple[float, float, float]]:
    """Of each class, by the task it was met in: a hue per task, shades within it."""
    from matplotlib.colors import to_rgb

    order = list(dict.fromkeys(tasks))
    found = []
    for task, group in groupby(tasks):
        hue = np.array(to_rgb(COLOURS[order.index(task) % len(COLOURS)]))
        for number, _ in enumerate(group):
            part = SHADES[number % len(SHADES)]
            red, green, blue = (part * hue + (1 - part)).tolist()
            found.append((red, green, blue))
    return found


def _draw(axes: Axes, one: Memory) -> None:
    few = len(one.classes) <= NAMED
    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4} if few else {"linewidth": 0, "rasterized": True}
    axes.stackplot(one.at, table(one), colors=colours(first_tasks(one.met, one.ends)), **edge)


def _name_classes(axes: Axes, one: Memory, inches: float) -> None:
    """Beside the middle of each area at the end."""
    tops = np.concatenate([[0], table(one)[:, -1].cumsum()])
    texts, starts, stops = zip(*names(one.classes, one.met, one.ends), strict=True)
    middles = [float(tops[start] + tops[stop]) / 2 for start, stop in zip(starts, stops, strict=True)]
    write_names(axes, texts, middles, inches=inches, left=False)
