from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest

from iblurry.errors import InputError
from iblurry.studies.figures.composition import Memory, colours, composition, memory, table
from tests.studies.figures.conftest import METHODS

SMALL = Memory(
    at=[10, 20, 40], rows=[(5,), (3, 2), (1, 2, 2)], classes=["cat", "dog", "owl"], met=[1, 12, 33], ends=[20, 40]
)


@dataclass(frozen=True)
class Held:
    kind: ClassVar[str] = "held"
    at: int
    rows: tuple[int, ...]


def large(classes, tasks, seed=0, capacity=500, samples=5000):
    rng = np.random.default_rng(seed)
    met = sorted([1, *(int(at) for at in rng.integers(2, samples - 200, classes - 1))])
    at = range(100, samples + 1, 100)
    known = [sum(first <= n for first in met) for n in at]
    rows = [
        tuple(int(n) for n in rng.multinomial(min(capacity, n), np.ones(k) / k)) for n, k in zip(at, known, strict=True)
    ]
    ends = [samples * (task + 1) // tasks for task in range(tasks)]
    return Memory(list(at), rows, [f"class_{n}" for n in range(classes)], met, ends)


def test_areas_are_rows_class_upon_class(drawn, tmp_path):
    composition({"clib, seed 1": SMALL}, tmp_path / "f.png", title="t")
    axes = drawn[0].axes[0]
    assert table(SMALL).tolist() == [[5, 3, 1], [0, 2, 2], [0, 0, 2]]
    tops = np.cumsum(table(SMALL), axis=0)
    assert len(axes.collections) == 3
    for area, low, high in zip(axes.collections, [np.zeros(3), *tops], tops, strict=False):
        corners = {tuple(corner) for corner in area.get_paths()[0].vertices}
        assert corners == {*zip(SMALL.at, low, strict=True), *zip(SMALL.at, high, strict=True)}
    assert [text.get_text() for text in axes.texts] == ["cat", "dog", "owl"]
    assert [text.get_position()[1] for text in axes.texts] == pytest.approx([0.5, 2, 4])  # the middles, at the end
    assert axes.get_ylim() == (0, 5)
    assert axes.get_xlim() == (0, 40)


def test_a_hue_per_task_and_shades_within_it():
    found = colours([0] * 5 + [1, 2])
    assert all(one != other for one, other in pairwise(found))
    assert found[0] == found[4]
    red, green, blue = found[0]
    assert found[1] == pytest.approx([0.55 * part + 0.45 for part in (red, green, blue)])


@pytest.mark.parametrize("classes, tasks, methods", [(20, 5, 3), (100, 10, 2), (200, 20, 1)])
def test_many_classes_tasks_and_methods(drawn, tmp_path, classes, tasks, methods):
    memories = {f"{method}, seed 1": large(classes, tasks, n) for n, method in enumerate(METHODS[-methods:])}
    composition(memories, tmp_path / "f.png", title="t")
    assert [axes.get_title().replace("\n", " ") for axes in drawn[0].axes] == list(memories)
    assert all(len(axes.collections) == classes for axes in drawn[0].axes)
    assert {len(axes.texts) for axes in drawn[0].axes} == {classes if classes <= 20 else tasks}


def test_from_a_journal(records):
    journal = records(1)
    assert memory(journal) is None
    one = memory([*journal, Held(20, (3,)), Held(400, (1, 1, 1, 2))])
    assert one is not None
    assert (one.at, one.rows, one.ends) == ([20, 400], [(3,), (1, 1, 1, 2)], (200, 400))
    assert one.classes == [f"class_{n}" for n in range(4)]
    assert one.met == [record.at for record in journal if record.kind == "class"]


def test_nothing_to_draw(tmp_path):
    with pytest.raises(InputError, match="no memories to draw"):
        composition({}, tmp_path / "f.png")
