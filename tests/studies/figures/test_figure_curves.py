from dataclasses import replace

import numpy as np
import pytest

from iblurry.errors import InputError
from iblurry.experiment.journal import Query
from iblurry.studies import run_figure as single
from iblurry.studies.figures.curves import curves
from tests.studies.figures.conftest import METHODS


def test_a_single_column_is_the_figure_of_show(tmp_path, records):
    groups = {"er": [records(1), records(2)], "clib": [records(3)]}
    curves({"": groups}, tmp_path / "one.svg", title="t")
    single.curves(groups, tmp_path / "two.svg", title="t")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_every_column_has_a_panel_and_a_method_one_look(drawn, tmp_path, records):
    runs = {"er": [records(1), records(2)], "clib": [records(3), records(4)]}
    curves({"N=0": runs, "N=50": {"clib": runs["clib"]}, "N=100": runs}, tmp_path / "f.png", title="a $title$")
    places = drawn[0].axes
    assert [axes.get_title() for axes in places] == ["N=0", "N=50", "N=100"]
    _, clib = places[0].lines[:2]
    alone = places[1].lines[0]
    at, mean, _ = single.shared_curve("clib", runs["clib"])
    for line in (clib, alone):
        assert line.get_xdata() == pytest.approx(at)
        assert line.get_ydata() == pytest.approx(100 * mean)
    assert (clib.get_color(), clib.get_marker()) == (alone.get_color(), alone.get_marker())
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["er", "clib"]
    assert len({axes.get_ylim() for axes in places}) == 1


def test_the_axis_that_panels_share_has_room_for_all_of_them(drawn, tmp_path, records):
    curves({"low": {"er": [records(1)]}, "high": {"er": [high(records(1))]}}, tmp_path / "f.png")
    bottom, top = drawn[0].axes[0].get_ylim()
    shown = [y for axes in drawn[0].axes for y in axes.lines[0].get_ydata()]
    assert bottom <= min(shown) < 70
    assert max(shown) == 100 == top


def high(run):
    return [replace(one, correct=one.total) if isinstance(one, Query) else one for one in run]


def test_labels_stand_at_the_edges_alone(drawn, tmp_path, records):
    curves({name: {"er": [records(1)]} for name in "abc"}, tmp_path / "f.png")
    places = drawn[0].axes
    assert [bool(axes.get_ylabel()) for axes in places] == [True, False, True]
    assert [bool(axes.get_xlabel()) for axes in places] == [False, True, True]


@pytest.mark.parametrize("tasks", [5, 12])
def test_ten_methods_with_long_names_in_five_columns(drawn, tmp_path, records, tasks):
    groups = {method: [records(n, tasks=tasks, samples=480)] for n, method in enumerate(METHODS)}
    curves({f"N={n}": groups for n in range(3)}, tmp_path / "f.png", title="t", arrivals=True)
    assert len({(line.get_color(), line.get_marker()) for line in drawn[0].axes[2].lines[:10]}) == 10
    marks = [line.get_xdata() for line in drawn[0].axes[0].lines if line.get_marker() == "|"]
    met = {record.at for runs in groups.values() for run in runs for record in run if record.kind == "class"}
    assert [set(np.array(at)) for at in marks] == [met]


def test_nothing_to_draw(tmp_path):
    for nothing in ({}, {"N=0": {}}):
        with pytest.raises(InputError, match="no runs to draw"):
            curves(nothing, tmp_path / "f.png")
