"""FLOPs as an axis: where queries lie on it, and methods as points."""

from __future__ import annotations

import numpy as np
import pytest

from iblurry.analysis.figures.curves import draw_curves
from iblurry.analysis.figures.draw import draw_study
from iblurry.analysis.figures.flops import draw_flops, training_tflops_at, undominated
from iblurry.errors import InputError
from iblurry.experiment.journal import Query, Spent
from tests.analysis.figures.conftest import METHODS, run
from tests.analysis.figures.test_figure_draw import STUDY
from tests.studies.written import FLOPS, spend, tabulated, write_run


def spent(at, tflops, queries=7):
    flops = {"training": int(tflops * 1e12), "queries": int(queries * 1e12)}
    return Spent(at, 0, {"training": 1, "queries": 1}, {"training": 1, "queries": 0}, flops, {"memory": 1})


def counted(*tflops, seed=0, **changes):
    """A journal of two tasks whose training took so much until the end of each."""
    return run(seed, **changes) + [spent(200 * (task + 1), amount) for task, amount in enumerate(tflops)]


def at_updates(records, updates):
    """The same journal, with this many updates by samples seen."""
    return [
        Query(one.at, one.task, one.correct, one.total, one.rate, updates(one.at)) if isinstance(one, Query) else one
        for one in records
        if getattr(one, "kind", "") != "task"
    ]


def test_between_task_ends_flops_grow_with_updates():
    at = np.array([20, 100, 200, 300, 400])
    even = training_tflops_at(counted(10, 40), at)
    assert even == pytest.approx([1, 5, 10, 25, 40])
    early = at_updates(counted(10, 40), lambda at: 4 * at if at <= 100 else 400 + (at - 100))  # more updates at first
    assert training_tflops_at(early, at) == pytest.approx([10 * 80 / 500, 10 * 400 / 500, 10, 25, 40])
    never = at_updates(counted(10, 40), lambda at: 0)  # a method that learns in refits
    assert training_tflops_at(never, at) == pytest.approx(even)
    with pytest.raises(InputError, match="spent"):
        training_tflops_at(run(), at)


def test_curves_over_flops(drawn, tmp_path):
    runs = {"er": [counted(1, 2, seed=1), counted(1, 2, seed=2)], "clib": [counted(10, 20, seed=3)]}
    draw_curves({"": runs}, tmp_path / "f.png", x="flops", title="Title")
    axes = drawn[0].axes[0]
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "training TFLOPs, log scale")
    er, clib = (line.get_xdata() for line in axes.lines[:2])
    assert er == pytest.approx(np.arange(20, 401, 20) / 200)
    assert clib == pytest.approx(10 * er)
    draw_curves({"": runs}, tmp_path / "f.png", title="Title")
    for one, other in zip(drawn[0].axes[0].lines[:2], drawn[1].axes[0].lines[:2], strict=True):
        assert one.get_ydata() == pytest.approx(other.get_ydata())


def test_before_the_first_update_there_is_no_place_on_the_axis(drawn, tmp_path):
    late = at_updates(counted(1, 2), lambda at: max(0, at - 60))
    draw_curves({"": {"er": [late]}}, tmp_path / "f.png", x="flops")
    (line,) = drawn[0].axes[0].lines
    assert np.isnan(line.get_xdata()[:3]).all()
    assert (line.get_xdata()[3:] > 0).all()
    low, high = drawn[0].axes[0].get_xlim()
    assert 0 < low < line.get_xdata()[3] < high


def test_a_method_that_is_asked_once_is_a_point_at_all_its_flops(drawn, tmp_path):
    once = [one for one in counted(5, 9, asked=False) if getattr(one, "at", 400) == 400 or one.kind != "task"]
    draw_curves({"": {"er": [counted(1, 2)], "joint": [once]}}, tmp_path / "f.png", x="flops")
    (point,) = drawn[0].axes[0].containers
    assert point.lines[0].get_xdata() == pytest.approx([9])


def test_points_of_a_study(drawn, tmp_path):
    for number, planned in enumerate(STUDY.plan("cifar10", seeds=(1, 2))):
        folder, *_ = write_run(tmp_path, planned.experiment, 40 + 2 * number)
        losses = 9000 * (planned.row == "clib")
        spend(folder, training=1000 + 100 * planned.experiment.seed, losses=losses, queries=10**6)
    table = tabulated(STUDY, "cifar10", [tmp_path], seeds=(1, 2), metrics=["a_auc"])
    draw_study(table, "flops", tmp_path / "f.png")
    assert [axes.get_title() for axes in drawn[0].axes] == ["N=0", "N=50"]
    for axes, column in zip(drawn[0].axes, ("N=0", "N=50"), strict=True):
        for container, row, losses in zip(axes.containers, ("er", "clib"), (0, 9000), strict=True):
            x, y = (data[0] for data in container.lines[0].get_data())
            assert x == pytest.approx(FLOPS * (3 * 1150 + losses) / 1e12)
            assert y == pytest.approx(table.ours(row, column, "a_auc").mean)
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["best for its FLOPs", "ER", "CLIB"]


@pytest.mark.slow
def test_many_methods_and_long_names_have_room(drawn, tmp_path):
    points = {name: {row: [(2.0**n, 40 + n), (2.1**n, 41 + n)] for n, row in enumerate(METHODS)} for name in ("a", "b")}
    draw_flops(points, tmp_path / "f.png", metric="aaa", title="Title")
    draw_flops({"": points["a"]}, tmp_path / "f.png", metric="forgetting")
    assert len(drawn) == 2
    assert len(drawn[1].axes[0].containers) == len(METHODS)
    with pytest.raises(InputError, match="FLOPs"):
        draw_flops({}, tmp_path / "f.png")


def test_who_is_beaten_with_fewer_flops_is_not_on_the_line():
    points = [(3, 70), (1, 50), (2, 40), (4, 65), (9, 80)]
    assert undominated(points) == [1, 0, 4]
    assert undominated(points, sign=-1) == [1, 2]
