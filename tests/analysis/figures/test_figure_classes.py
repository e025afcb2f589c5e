"""Classes one by one: accuracy over time, what was forgotten, and what the memory held."""

from itertools import pairwise

import numpy as np
import pytest

from iblurry.analysis.figures.classes import (
    class_accuracies,
    class_colours,
    draw_composition,
    draw_forgetting,
    memory_rows,
    points_lost,
)
from iblurry.errors import InputError
from iblurry.experiment.journal import Held, NewClass, Query, Start, TaskEnd
from iblurry.experiment.metrics import f_last
from tests.analysis.figures.conftest import METHODS, large

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
SMALL = [*TWO[:4], Held(10, (5,)), Held(20, (3, 2)), Held(40, (1, 2, 2))]


def test_accuracy_class_by_class():
    one, nan = class_accuracies(TWO), np.nan
    wanted = [[40, 90, 50, 30], [nan, 20, 100, 80], [nan, nan, nan, nan]]  # the owl has no test image
    np.testing.assert_allclose(one.table, wanted)
    assert (one.classes, one.met, one.tasks) == (["cat", "dog", "owl"], [1, 12, 33], [0, 0, 1])
    assert ([*one.at], one.ends) == ([10, 20, 30, 40], (20, 40))
    np.testing.assert_allclose(points_lost(TWO, 3), [50, -40, nan])  # between the ends of tasks


def test_the_mean_of_what_was_lost_is_f_last(records):
    for seed in range(3):
        journal = records(seed, classes=10, tasks=4)
        assert np.nanmean(points_lost(journal, 10)) == pytest.approx(100 * f_last(journal))
    assert np.isnan(points_lost(records(1, tasks=1), 4)).all()


def test_tiles_are_accuracies_and_bars_are_what_was_lost(drawn, tmp_path, records):
    journal = records(3, classes=8, tasks=4)
    one, lost = class_accuracies(journal), points_lost(journal, 8)
    draw_forgetting({"clib, seed 1": journal}, tmp_path / "f.png", title="t")
    heat, strip, scale = drawn[0].axes
    (mesh,) = heat.collections
    np.testing.assert_allclose(mesh.get_array().filled(np.nan), one.table)
    assert mesh.get_coordinates()[0, :, 0].tolist() == [0, *one.at]
    assert mesh.get_clim() == (0, 100)
    assert [bar.get_width() for bar in strip.patches] == pytest.approx(np.nan_to_num(lost))
    assert [bar.get_y() + 0.4 for bar in strip.patches] == pytest.approx(np.arange(8) + 0.5)
    crosses = [line.get_ydata()[0] for line in strip.lines if line.get_marker() == "x"]
    assert crosses == [row + 0.5 for row in np.flatnonzero(np.isnan(lost))]
    dashed = next(line for line in strip.lines if line.get_linestyle() == "--")
    assert dashed.get_xdata()[0] == pytest.approx(np.nanmean(lost))
    assert strip.get_title().endswith(f"{np.nanmean(lost):.1f}")
    assert [text.get_text() for text in heat.texts] == [f"class_{n}" for n in range(8)]
    assert heat.get_ylim() == strip.get_ylim() == (8, 0)  # the first at the top
    assert scale.get_xlabel() == "accuracy of a class (%)"


def test_one_task_has_nothing_to_lose(drawn, tmp_path, records):
    draw_forgetting({"er": records(1, tasks=1)}, tmp_path / "f.png")
    assert "–" in drawn[0].axes[1].get_title()


def test_a_method_asked_at_the_end_is_not_drawn_as_if_asked_all_along(drawn, tmp_path):
    once = [record for record in TWO if not isinstance(record, Query | TaskEnd) or record is TWO[-1]]
    draw_forgetting({"Joint": once}, tmp_path / "f.png")
    heat = drawn[0].axes[0]
    (mesh,) = heat.collections
    left, right = mesh.get_coordinates()[0, :, 0]
    assert 0.9 * 40 < left < right == 40
    assert "asked at the end only" in [text.get_text() for text in heat.texts]


def test_areas_are_rows_class_upon_class(drawn, tmp_path):
    draw_composition({"clib, seed 1": SMALL, "older": TWO}, tmp_path / "f.png", title="t")  # one has nothing to show
    (axes,) = drawn[0].axes
    memory = memory_rows(SMALL)
    assert memory.table.tolist() == [[5, 3, 1], [0, 2, 2], [0, 0, 2]]
    tops = np.cumsum(memory.table, axis=0)
    for area, low, high in zip(axes.collections, [np.zeros(3), *tops[:-1]], tops, strict=True):
        corners = {tuple(corner) for corner in area.get_paths()[0].vertices}
        assert corners == {*zip(memory.at, low, strict=True), *zip(memory.at, high, strict=True)}
    assert [text.get_text() for text in axes.texts] == ["cat", "dog", "owl"]
    assert [text.get_position()[1] for text in axes.texts] == pytest.approx([0.5, 2, 4])  # the middles, at the end
    assert (axes.get_ylim(), axes.get_xlim()) == ((0, 5), (0, 40))


def test_a_memory_that_keeps_everything_has_an_axis_of_its_own(drawn, tmp_path):
    whole = [*TWO[:3], Held(10, (10,)), Held(40, (20, 20))]
    draw_composition({"ER": SMALL, "Joint": whole, "CLIB": SMALL, "RM": SMALL}, tmp_path / "f.png")
    assert [axes.get_ylim()[1] for axes in drawn[0].axes] == [5, 40, 5, 5]
    shown = [axes.yaxis.get_tick_params()["labelleft"] for axes in drawn[0].axes]
    assert shown == [True, True, True, False]  # where the panel at the left has another axis, or there is none
    own = ["axis of its own" in axes.get_title().replace("\n", " ") for axes in drawn[0].axes]
    assert own == [False, True, False, False]
    draw_composition({"Joint": whole, "Everything": whole}, tmp_path / "f.png")
    assert [axes.get_title() for axes in drawn[1].axes] == ["Joint", "Everything"]


def test_a_hue_per_task_and_shades_within_it():
    found = class_colours([0] * 5 + [1, 2])
    assert all(one != other for one, other in pairwise(found))
    assert found[0] == found[4]
    assert found[1] == pytest.approx([0.55 * part + 0.45 for part in found[0]])


@pytest.mark.quick("20-5-3")
@pytest.mark.parametrize("classes, tasks, methods", [(20, 5, 3), (10, 5, 10), (200, 20, 1)])
def test_many_classes_tasks_and_methods(drawn, tmp_path, classes, tasks, methods):
    runs = {f"{method}, seed 1": large(classes, tasks, n) for n, method in enumerate(METHODS[-methods:])}
    draw_composition(runs, tmp_path / "f.png", title="t")
    assert [axes.get_title().replace("\n", " ") for axes in drawn[0].axes] == list(runs)
    assert all(len(axes.collections) == classes for axes in drawn[0].axes)
    assert {len(axes.texts) for axes in drawn[0].axes} == {classes if classes <= 20 else tasks}
    draw_forgetting(runs, tmp_path / "f.png", title="t")
    heats, strips = drawn[1].axes[:-1:2], drawn[1].axes[1:-1:2]
    assert [axes.get_title().replace("\n", " ") for axes in heats] == list(runs)
    assert len({axes.get_xlim() for axes in strips}) == 1
    edges = [text.get_text() for text in heats[0].texts]
    assert edges[0] == "class_0" if classes <= 20 else edges[0].startswith("task 1: ")


def test_nothing_to_draw(tmp_path):
    for draw, runs in ((draw_composition, {}), (draw_forgetting, {}), (draw_composition, {"older": TWO})):
        with pytest.raises(InputError):
            draw(runs, tmp_path / "f.png")
