"""Names of classes at the edge of a figure: each by its own up to twenty, by the task they were met in beyond."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from iblurry.studies.figures.classes import first_tasks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 20  # classes that are named one by one
LINE = 0.115  # inches between two names


def names(classes: Sequence[str], met: Sequence[int], ends: Sequence[int]) -> list[tuple[str, int, int]]:
    """What to write, and the positions of the classes it stands for: from, and up to."""
    if len(classes) <= NAMED:
        return [(name, number, number + 1) for number, name in enumerate(classes)]
    found, start = [], 0
    for task, group in groupby(first_tasks(met, ends)):
        size = len(list(group))
        found.append((f"task {task + 1}: {size} {'classes' if size > 1 else 'class'}", start, start + size))
        start += size
    return found


def height(labels: int) -> float:
    """Inches that a panel with so many names needs, its own titles and ticks included."""
    return 0.7 + LINE * labels


def write_names(axes: Axes, texts: Sequence[str], places: Sequence[float], *, inches: float, left: bool) -> None:
    """Beside the axes, which have a panel of so many inches; a thin line leads to where a name had to be moved."""
    low, high = sorted(axes.get_ylim())
    moved = spread(places, (high - low) * LINE / (inches - 0.7), high)
    sideways = axes.get_yaxis_transform()
    edge, bend, word, side = (0.0, -0.025, -0.035, "right") if left else (1.0, 1.025, 1.035, "left")
    for text, place, beside in zip(texts, places, moved, strict=True):
        axes.plot([edge, bend], [place, beside], color="0.5", linewidth=0.5, clip_on=False, transform=sideways)
        axes.text(word, beside, text, fontsize=7, va="center", ha=side, transform=sideways, parse_math=False)


def spread(places: Sequence[float], gap: float, high: float) -> list[float]:
    """Ascending places, moved so that neighbours are a gap apart and none is above `high`.

    >>> spread([1.0, 1.0, 5.0], gap=1.0, high=5.0)
    [1.0, 2.0, 5.0]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    for number in reversed(range(len(moved))):
        moved[number] = min(moved[number], high if number == len(moved) - 1 else moved[number + 1] - gap)
    return moved
