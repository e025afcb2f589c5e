"""Figures caught on their way to the file, and runs that nobody ran."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.figure import Figure

from iblurry.experiment.journal import Held, NewClass, Query, Record, Start, TaskEnd

METHODS = (
    *("ewc", "ewc schedule=Constant", "bic", "mir", "agem", "gss", "gdumb", "rm", "er"),
    "clib admission=Balanced schedule=Exponential",
)


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """The figures drawn, laid out as in the file, with no word upon another and none beyond the edge."""
    figures: list[Figure] = []

    def catch(self, *args, **kwargs):
        self.draw_without_rendering()
        no_word_upon_another(self)
        figures.append(self)

    monkeypatch.setattr(Figure, "savefig", catch)
    return figures


def look(line):
    """What tells a drawn line from others."""
    return line.get_color(), line.get_marker(), line.get_fillstyle(), str(line._dash_pattern)


@pytest.fixture
def records():
    return run


def run(seed=0, *, classes=4, tasks=2, samples=400, every=20, rate=0.1, asked=True) -> list[Record]:
    """A journal with known answers: half the classes come at once, the others task by task."""
    rng = np.random.default_rng(seed)
    ends = tuple(samples * (task + 1) // tasks for task in range(tasks))
    late = sorted(int(task * samples // tasks) + 2 + k for k, task in enumerate(rng.integers(0, tasks, classes // 2)))
    met = sorted([*range(1, classes - classes // 2 + 1), *late])
    found: list[Record] = [Start("x", samples, ends, every)]
    found += [NewClass(at, f"class_{number}") for number, at in enumerate(met)]
    for at in range(every, samples + 1, every):
        known = sum(first <= at for first in met)
        right = tuple(int(n) for n in rng.integers(0, 100, known))
        facts = (at, int(np.searchsorted(ends, at)), right, (100,) * known, rate * (1 + at / samples), at)
        found += [Query(*facts)] if asked else []
        found += [TaskEnd(*facts)] if at in ends else []
    return found


def large(classes, tasks, seed=0, capacity=500, samples=5000) -> list[Record]:
    """A journal of many classes, with what the memory held; half of the answers are right."""
    rng = np.random.default_rng(seed)
    met = sorted([1, *(int(at) for at in rng.integers(2, samples - 200, classes - 1))])
    ends = tuple(samples * (task + 1) // tasks for task in range(tasks))
    found: list[Record] = [Start("x", samples, ends, 100), *(NewClass(at, f"class_{n}") for n, at in enumerate(met))]
    for at in range(100, samples + 1, 100):
        known = sum(first <= at for first in met)
        task = int(np.searchsorted(ends, at))
        facts = (at, task, tuple(rng.integers(0, 100, known).tolist()), (100,) * known, 0.1, at)
        found += [Query(*facts), *([TaskEnd(*facts)] if at in ends else [])]
        found.append(Held(at, tuple(rng.multinomial(min(capacity, at), np.ones(known) / known).tolist())))
    return found


def no_word_upon_another(figure: Figure) -> None:
    boxes = [(text.get_text(), text.get_window_extent()) for text in _texts(figure)]
    page = figure.bbox
    for words, box in boxes:
        inside = page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1 and page.y0 - 1 <= box.y0 and box.y1 <= page.y1 + 1
        assert inside, f"{words!r} is beyond the edge: {box}"
    level = [box for text, box in zip(_texts(figure), boxes, strict=True) if text.get_rotation() % 90 == 0]
    for (one, left), (two, right) in combinations(level, 2):
        apart = min(left.x1, right.x1) - max(left.x0, right.x0), min(left.y1, right.y1) - max(left.y0, right.y0)
        assert min(apart) < 1.5, f"{one!r} is upon {two!r}"  # a box is a little larger than its letters


def _texts(figure):
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    children = [child for axes in figure.axes for child in axes.child_axes]
    for axes in [*figure.axes, *children]:
        found += [*axes.texts, axes.title]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [axis.label, *(text for tick in inside for text in (tick.label1, tick.label2))]
    return [text for text in found if text.get_visible() and text.get_text()]
