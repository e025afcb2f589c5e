"""Classes one by one: when each was met, its accuracy over time, what was forgotten, and its name at the edge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from iblurry.experiment.class_metrics import accuracy_table
from iblurry.experiment.journal import Evaluation, NewClass, Query, Record, Start, TaskEnd
from iblurry.experiment.metrics import class_accuracy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 20  # classes that are named one by one
LINE = 0.115  # inches between two names


@dataclass(frozen=True)
class ClassAccuracy:
    """A run's accuracy on each class over time."""

    classes: Sequence[str]  # in order of exposure
    met: Sequence[int]  # their first samples
    ends: Sequence[int]  # last samples of the tasks
    at: Sequence[int]  # samples seen at each evaluation
    accuracy: NDArray[np.float64]  # (classes, evaluations), percent; not a number before a class was met
    lost: NDArray[np.float64]  # (classes,), points since the best earlier task end; nan where there was nothing to lose


def class_accuracies(records: Sequence[Record]) -> ClassAccuracy:
    """Reads the accuracy of each class from a run's journal."""
    classes = [record for record in records if isinstance(record, NewClass)]
    known = find_evaluations(records)
    return ClassAccuracy(
        classes=[record.label for record in classes],
        met=[record.at for record in classes],
        ends=next(record.ends for record in records if isinstance(record, Start)),
        at=[record.at for record in known],
        accuracy=100 * accuracy_table(known, len(classes)),
        lost=points_lost(records, len(classes)),
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


def first_tasks(met: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The task, from 0, that each class was met in.

    >>> first_tasks([1, 20, 21], ends=[20, 40])
    [0, 0, 1]
    """
    return [int(task) for task in np.searchsorted(ends, met)]


def edge_names(classes: Sequence[str], met: Sequence[int], ends: Sequence[int]) -> list[tuple[str, int, int]]:
    """What to write, and the positions of the classes it stands for: from, and up to."""
    if len(classes) <= NAMED:
        return [(name, number, number + 1) for number, name in enumerate(classes)]
    found, start = [], 0
    for task, group in groupby(first_tasks(met, ends)):
        size = len(list(group))
        found.append((f"task {task + 1}: {size} {'classes' if size > 1 else 'class'}", start, start + size))
        start += size
    return found


def edge_height(names: Iterable[Sequence[object]]) -> float:
    """Inches that panels with these names at their edges need, their own titles and ticks included."""
    return 0.7 + LINE * max(map(len, names))


def write_names(
    axes: Axes, names: Sequence[tuple[str, int, int]], edges: Sequence[float], *, inches: float, left: bool
) -> None:
    """Writes `edge_names` beside the axes, whose panel is so many inches high; class i lies from edges[i] to the next.

    A thin line leads to where a name had to be moved.
    """
    places = [float(edges[start] + edges[stop]) / 2 for _, start, stop in names]
    low, high = sorted(axes.get_ylim())
    moved = spread_apart(places, (high - low) * LINE / (inches - 0.7), high)
    sideways = axes.get_yaxis_transform()
    edge, bend, word, side = (0.0, -0.025, -0.035, "right") if left else (1.0, 1.025, 1.035, "left")
    for (text, _, _), place, beside in zip(names, places, moved, strict=True):
        axes.plot([edge, bend], [place, beside], color="0.5", linewidth=0.5, clip_on=False, transform=sideways)
        axes.text(word, beside, text, fontsize=7, va="center", ha=side, transform=sideways, parse_math=False)


def spread_apart(places: Sequence[float], gap: float, high: float) -> list[float]:
    """Ascending places, moved so that neighbours are a gap apart and none is above `high`.

    >>> spread_apart([1.0, 1.0, 5.0], gap=1.0, high=5.0)
    [1.0, 2.0, 5.0]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    for number in reversed(range(len(moved))):
        moved[number] = min(moved[number], high if number == len(moved) - 1 else moved[number + 1] - gap)
    return moved
