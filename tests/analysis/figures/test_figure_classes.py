"""Classes one by one: accuracy over time, what was forgotten, and what the memory held."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest

from iblurry.analysis.figures.classes import class_accuracies, edge_names, first_tasks, points_lost, spread_apart
from iblurry.analysis.figures.composition import (
    MemoryComposition,
    class_colours,
    draw_composition,
    memory_composition,
    rows_table,
)
from iblurry.analysis.figures.forgetting import draw_forgetting
from iblurry.errors import InputError
from iblurry.experiment.journal import NewClass, Query, Start, TaskEnd
from iblurry.experiment.metrics import f_last
from tests.analysis.figures.conftest import METHODS

TWO = [
    Start("x", 40, (20, 40), 10),
    NewClass(1, "cat"),
    NewClass(12, "dog"),
    NewClass(33, "owl"),
    Query(10, 0, (4,), (10,), 0.1, 10),
    Query(20, 0, (9, 1), (10, 5), 0.1, 20),
    TaskEnd(20, 0, (8, 2), (10, 5), 0.1, 20),
    Query(30, 1, (5, 5), (10, 5), 0.1, 30),
    Query(40, 1, (3, 4, 0), (10, 5, 0), 0.1, 40),
    TaskEnd(40, 1, (3, 4, 0), (10, 5, 0), 0.1, 40),
]


def test_accuracy_class_by_class():
    one = class_accuracies(TWO)
    nan = np.nan
    wanted = [[40, 90, 50, 30], [nan, 20, 100, 80], [nan, nan, nan, nan]]  # the owl has no test image
    np.testing.assert_allclose(one.accuracy, wanted)
    assert (one.classes, one.met, list(one.at), one.ends) == (
        ["cat", "dog", "owl"],
        [1, 12, 33],
        [10, 20, 30, 40],
        (20, 40),
    )
    np.testing.assert_allclose(one.lost, [50, -40, nan])  # between the ends of tasks


def test_the_mean_of_what_was_lost_is_f_last(records):
    for seed in range(3):
        journal = records(seed, classes=10, tasks=4)
        assert np.nanmean(points_lost(journal, 10)) == pytest.approx(100 * f_last(journal))
    assert np.isnan(points_lost(records(1, tasks=1), 4)).all()


def test_a_class_belongs_to_the_task_of_its_first_sample():
    assert first_tasks([1, 20, 21, 40], [20, 40]) == [0, 0, 1, 1]


def test_names_at_the_edge_are_classes_or_tasks():
    assert edge_names(["cat", "dog"], [1, 30], [20, 40]) == [("cat", 0, 1), ("dog", 1, 2)]
    many = [str(n) for n in range(30)]
    met = [*range(1, 26), 30, 41, 42, 43, 44]
    assert edge_names(many, met, [29, 40, 60]) == [
        ("task 1: 25 classes", 0, 25),
        ("task 2: 1 class", 25, 26),
        ("task 3: 4 classes", 26, 30),
    ]


def test_names_are_moved_apart_and_stay_inside():
    assert spread_apart([0, 5, 9], 1, 10) == [0, 5, 9]
    moved = spread_apart([8.0, 9.0, 9.5, 9.9], 1, 10)
    assert moved == [7, 8, 9, 10]
    assert (np.diff(spread_apart(sorted(np.random.default_rng(0).random(20) * 10), 0.4, 10)) > 0.4 - 1e-9).all()


def test_tiles_are_accuracies_and_bars_are_what_was_lost(drawn, tmp_path, records):
    one = class_accuracies(records(3, classes=8, tasks=4))
    draw_forgetting({"clib, seed 1": one}, tmp_path / "f.png", title="t")
    heat, strip, scale = drawn[0].axes
    (mesh,) = heat.collections
    np.testing.assert_allclose(mesh.get_array().filled(np.nan), one.accuracy)
    edges = mesh.get_coordinates()
    assert edges[0, :, 0].tolist() == [0, *one.at]
    assert mesh.get_clim() == (0, 100)
    assert [bar.get_width() for bar in strip.patches] == pytest.approx(np.nan_to_num(one.lost))
    assert [bar.get_y() + 0.4 for bar in strip.patches] == pytest.approx(np.arange(8) + 0.5)
    crosses = [line.get_ydata()[0] for line in strip.lines if line.get_marker() == "x"]
    assert crosses == [row + 0.5 for row in np.flatnonzero(np.isnan(one.lost))]
    dashed = next(line for line in strip.lines if line.get_linestyle() == "--")
    assert dashed.get_xdata()[0] == pytest.approx(np.nanmean(one.lost))
    assert strip.get_title().endswith(f"{np.nanmean(one.lost):.1f}")
    assert [text.get_text() for text in heat.texts] == [f"class_{n}" for n in range(8)]
    assert heat.get_ylim() == strip.get_ylim() == (8, 0)  # the first at the top
    assert scale.get_xlabel() == "accuracy of a class (%)"


@pytest.mark.quick("100-20-1")
@pytest.mark.parametrize("classes, tasks, methods", [(100, 10, 3), (100, 20, 1), (10, 5, 10)])
def test_heat_maps_of_many_classes_tasks_and_methods(drawn, tmp_path, records, classes, tasks, methods):
    runs = {
        f"{method}, seed 1": class_accuracies(records(n, classes=classes, tasks=tasks, samples=4000, every=100))
        for n, method in enumerate(METHODS[-methods:])
    }
    draw_forgetting(runs, tmp_path / "f.png", title="t")
    assert len(drawn[0].axes) == 2 * methods + 1
    assert [axes.get_title().replace("\n", " ") for axes in drawn[0].axes[:-1:2]] == list(runs)
    assert len({axes.get_xlim() for axes in drawn[0].axes[1:-1:2]}) == 1


def test_one_task_has_nothing_to_lose(drawn, tmp_path, records):
    draw_forgetting({"er": class_accuracies(records(1, tasks=1))}, tmp_path / "f.png")
    assert "–" in drawn[0].axes[1].get_title()


SMALL = MemoryComposition(
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
    return MemoryComposition(list(at), rows, [f"class_{n}" for n in range(classes)], met, ends)


def test_areas_are_rows_class_upon_class(drawn, tmp_path):
    draw_composition({"clib, seed 1": SMALL}, tmp_path / "f.png", title="t")
    axes = drawn[0].axes[0]
    assert rows_table(SMALL).tolist() == [[5, 3, 1], [0, 2, 2], [0, 0, 2]]
    tops = np.cumsum(rows_table(SMALL), axis=0)
    assert len(axes.collections) == 3
    for area, low, high in zip(axes.collections, [np.zeros(3), *tops], tops, strict=False):
        corners = {tuple(corner) for corner in area.get_paths()[0].vertices}
        assert corners == {*zip(SMALL.at, low, strict=True), *zip(SMALL.at, high, strict=True)}
    assert [text.get_text() for text in axes.texts] == ["cat", "dog", "owl"]
    assert [text.get_position()[1] for text in axes.texts] == pytest.approx([0.5, 2, 4])  # the middles, at the end
    assert axes.get_ylim() == (0, 5)
    assert axes.get_xlim() == (0, 40)


def test_a_memory_that_keeps_everything_has_an_axis_of_its_own(drawn, tmp_path):
    whole = MemoryComposition(at=[10, 40], rows=[(10,), (20, 20)], classes=["cat", "dog"], met=[1, 12], ends=[20, 40])
    draw_composition({"ER": SMALL, "Joint": whole, "CLIB": SMALL, "RM": SMALL}, tmp_path / "f.png")
    assert [axes.get_ylim()[1] for axes in drawn[0].axes] == [5, 40, 5, 5]
    shown = [axes.yaxis.get_tick_params()["labelleft"] for axes in drawn[0].axes]
    assert shown == [True, True, True, False]  # where the panel at the left has another axis, or there is none
    assert ["axis of its own" in axes.get_title().replace("\n", " ") for axes in drawn[0].axes] == [
        *(False, True, False, False)
    ]
    draw_composition({"Joint": whole, "Everything": whole}, tmp_path / "f.png")
    assert [axes.get_title() for axes in drawn[1].axes] == ["Joint", "Everything"]


def test_a_method_asked_at_the_end_is_not_drawn_as_if_asked_all_along(drawn, tmp_path):
    once = class_accuracies([record for record in TWO if not isinstance(record, Query | TaskEnd) or record is TWO[-1]])
    draw_forgetting({"Joint": once}, tmp_path / "f.png")
    heat = drawn[0].axes[0]
    (mesh,) = heat.collections
    left, right = mesh.get_coordinates()[0, :, 0]
    assert 0.9 * 40 < left < right == 40
    assert "asked at the end only" in [text.get_text() for text in heat.texts]


def test_a_hue_per_task_and_shades_within_it():
    found = class_colours([0] * 5 + [1, 2])
    assert all(one != other for one, other in pairwise(found))
    assert found[0] == found[4]
    red, green, blue = found[0]
    assert found[1] == pytest.approx([0.55 * part + 0.45 for part in (red, green, blue)])


@pytest.mark.quick("20-5-3")
@pytest.mark.parametrize("classes, tasks, methods", [(20, 5, 3), (100, 10, 2), (200, 20, 1)])
def test_many_classes_tasks_and_methods(drawn, tmp_path, classes, tasks, methods):
    memories = {f"{method}, seed 1": large(classes, tasks, n) for n, method in enumerate(METHODS[-methods:])}
    draw_composition(memories, tmp_path / "f.png", title="t")
    assert [axes.get_title().replace("\n", " ") for axes in drawn[0].axes] == list(memories)
    assert all(len(axes.collections) == classes for axes in drawn[0].axes)
    assert {len(axes.texts) for axes in drawn[0].axes} == {classes if classes <= 20 else tasks}


def test_from_a_journal(records):
    journal = records(1)
    assert memory_composition(journal) is None
    one = memory_composition([*journal, Held(20, (3,)), Held(400, (1, 1, 1, 2))])
    assert one is not None
    assert (one.at, one.rows, one.ends) == ([20, 400], [(3,), (1, 1, 1, 2)], (200, 400))
    assert one.classes == [f"class_{n}" for n in range(4)]
    assert one.met == [record.at for record in journal if record.kind == "class"]


def test_nothing_to_draw(tmp_path):
    for draw in (draw_composition, draw_forgetting):
        with pytest.raises(InputError):
            draw({}, tmp_path / "f.png")
