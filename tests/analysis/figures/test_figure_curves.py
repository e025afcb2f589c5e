"""Accuracy and learning rates over samples or FLOPs: what is drawn, and the files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from iblurry.analysis.figures.curves import draw_curves, draw_rates, shared_curve, shared_rate, training_tflops_at
from iblurry.analysis.figures.style import COLOURS, open_figure
from iblurry.errors import InputError
from iblurry.experiment.journal import NewClass, Query, Record, Spent, Start, TaskEnd
from iblurry.experiment.metrics import a_last
from tests.analysis.figures.conftest import METHODS, look, run

SAMPLES = 60


def short_run(seed: int, *, every: int = 4, until: int = SAMPLES, ends: tuple[int, ...] = (20, 40, 60)) -> list[Record]:
    wobble = np.random.default_rng(seed).integers(-5, 6, size=SAMPLES + 1)
    start = Start(experiment="x", samples=SAMPLES, ends=ends, query_every=every)
    points = [
        Query(at=n, task=0, correct=(int(30 + n / 2 + wobble[n]),), total=(100,), rate=0.1, updates=n)
        for n in range(every, until + 1, every)
    ]
    return [start, NewClass(1, "ship"), NewClass(21, "cat"), *points]


def test_shared_curve_is_the_mean_where_all_seeds_were_asked():
    seeds = [short_run(1, every=4), short_run(2, every=6), short_run(3, every=4, until=40)]
    shared = shared_curve("er", seeds)
    at = shared.index.tolist()
    assert at == [12, 24, 36]
    values = np.array(
        [[r.accuracy for r in short_run(s, every=1) if isinstance(r, Query) and r.at in at] for s in (1, 2, 3)]
    )
    assert shared.to_numpy() == pytest.approx(values.T)
    assert shared_curve("er", seeds[:1]).shape == (15, 1)
    for apart in ([short_run(1, every=40), short_run(2, every=60)], []):
        with pytest.raises(InputError, match="'er'"):
            shared_curve("er", apart)


def test_the_figure_shows_lines_bands_tasks_and_areas(drawn, tmp_path):
    groups = {"clib": [short_run(1), short_run(2), short_run(3)], "e$r": [short_run(4)]}
    draw_curves({"": groups}, tmp_path / "f.png", title="a $title$", arrivals=True)
    axes = drawn[0].axes[0]
    clib, er, *others = axes.lines
    shared = shared_curve("clib", groups["clib"])
    assert clib.get_ydata() == pytest.approx(100 * shared.mean(axis=1))
    assert er.get_xdata() == pytest.approx(np.arange(4, 61, 4))
    (band,) = axes.collections  # of clib only
    low, high = (100 * (shared.mean(axis=1) + sign * shared.std(axis=1)) for sign in (-1, 1))
    corners = {(x, round(y, 6)) for x, y in band.get_paths()[0].vertices}
    assert {(x, round(y, 6)) for side in (low, high) for x, y in side.items()} <= corners
    assert [line.get_xdata()[0] for line in others if line.get_marker() == "None"] == [20, 40]
    assert [list(line.get_xdata()) for line in others if line.get_marker() == "|"] == [[1, 21]]
    assert [label.get_text() for label in axes.child_axes[0].get_xticklabels()] == ["task 1", "task 2", "task 3"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("samples seen", "accuracy on classes met so far (%)")
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    areas = [100 * np.mean([r.accuracy for r in records if isinstance(r, Query)]) for records in groups["clib"]]
    assert f"{np.mean(areas):.1f} ± {np.std(areas, ddof=1):.1f}" in labels[0]
    assert labels[1].startswith(r"e\$r")
    assert "±" not in labels[1]


@pytest.mark.parametrize(
    "ends, lines", [((30, 60), []), ((24, 40, 60), []), ((21, 40, 60), [20.5, 40])], ids=["other", "far", "near"]
)
def test_task_lines_stand_in_the_middle_and_only_where_runs_agree(drawn, tmp_path, ends, lines):
    draw_curves({"": {"er": [short_run(1), short_run(2, ends=ends)]}}, tmp_path / "f.png")
    assert [line.get_xdata()[0] for line in drawn[0].axes[0].lines[1:]] == lines


def as_drawn(figure):
    """(height, width, 3): what the last drawing left on the canvas, before any palette."""
    assert isinstance(figure.canvas, FigureCanvasAgg)
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(np.int64)


def as_saved(path):
    with Image.open(path) as image:
        assert image.width == 1320  # 6.6 inches at 200 dpi
        return np.asarray(image.convert("RGB"), dtype=np.int64)


def test_few_colours_change_no_line_and_a_colour_scale_keeps_all_of_its_own(tmp_path):
    with open_figure(tmp_path / "lines.png", 3.0) as lines:
        axes = lines.subplots()
        for level, colour in enumerate(COLOURS):
            x = np.linspace(0, 1, 200)
            y = np.sin(40 * x + level) + level / 3
            axes.plot(x, y, color=colour)
            axes.fill_between(x, y - 0.5, y + 0.5, color=colour, alpha=0.18)
    off = np.abs(as_saved(tmp_path / "lines.png") - as_drawn(lines)).max(axis=-1)
    assert 0 < off.max() <= 32
    assert (off > 16).mean() < 0.01  # many more bands over each other than any figure has

    with open_figure(tmp_path / "scale.png", 3.0) as scale:
        scale.colorbar(scale.subplots().imshow(np.arange(12.0).reshape(3, 4), cmap="Blues"))
    np.testing.assert_array_equal(as_saved(tmp_path / "scale.png"), as_drawn(scale))


def test_every_column_has_a_panel_and_a_method_one_look(drawn, tmp_path, records):
    runs = {"er": [records(1), records(2)], "clib": [records(3), records(4)]}
    draw_curves({"N=0": runs, "N=50": {"clib": runs["clib"]}, "N=100": runs}, tmp_path / "f.png", title="a $title$")
    places = drawn[0].axes
    assert [axes.get_title() for axes in places] == ["N=0", "N=50", "N=100"]
    clib, alone = places[0].lines[1], places[1].lines[0]
    curves = shared_curve("clib", runs["clib"])
    for line in (clib, alone):
        assert line.get_xdata() == pytest.approx(curves.index)
        assert line.get_ydata() == pytest.approx(100 * curves.mean(axis=1))
    assert look(clib) == look(alone)
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["ER", "CLIB"]
    assert len({axes.get_ylim() for axes in places}) == 1
    assert [bool(axes.get_ylabel()) for axes in places] == [True, False, True]  # at the edges alone
    assert [bool(axes.get_xlabel()) for axes in places] == [False, True, True]


def test_the_axis_that_panels_share_has_room_for_all_of_them(drawn, tmp_path, records):
    high = [replace(one, correct=one.total) if isinstance(one, Query) else one for one in records(1)]
    draw_curves({"low": {"er": [records(1)]}, "high": {"er": [high]}}, tmp_path / "f.png")
    bottom, top = drawn[0].axes[0].get_ylim()
    shown = [y for axes in drawn[0].axes for y in axes.lines[0].get_ydata()]
    assert bottom <= min(shown) < 70
    assert max(shown) == 100 == top


@pytest.mark.parametrize("draw", [draw_curves, draw_rates])
@pytest.mark.parametrize("tasks", [5, 12])
def test_ten_methods_with_long_names_in_three_columns(drawn, tmp_path, records, tasks, draw):
    groups = {method: [records(n, tasks=tasks, samples=480, rate=0.1**n)] for n, method in enumerate(METHODS)}
    draw({f"N={n}": groups for n in range(3)}, tmp_path / "f.png", title="t")
    assert len({look(line) for line in drawn[0].axes[2].lines[:10]}) == 10
    assert len({axes.get_ylim() for axes in drawn[0].axes}) == 1


def rated(at, rate, met=(1, 5, 21)) -> list[Record]:
    """A journal with these learning rates at these queries."""
    found: list[Record] = [Start("x", 40, (20, 40), 10), *(NewClass(n, f"class {n}") for n in met)]
    return found + [Query(n, 0, (1,), (2,), lr, n) for n, lr in zip(at, rate, strict=True)]


def test_rates_are_what_the_queries_say(records):
    (rate,) = shared_rate("er", [records(1, rate=0.5)]).to_dict().values()
    assert rate == pytest.approx({n: 0.5 * (1 + n / 400) for n in range(20, 401, 20)})
    assert [*shared_rate("er", [records(1, asked=False)]).index] == [200, 400]  # only at the ends of tasks


def test_lines_are_geometric_means_and_bands_least_and_greatest(drawn, tmp_path):
    seeds = [rated([10, 20, 40], [0.1, 0.4, 0.2]), rated([10, 30, 40], [0.4, 0.1, 0.2], (1, 7, 21))]
    draw_rates({"": {"clib": seeds, "e$r": [rated([10, 20], [1.0, 0.0])]}}, tmp_path / "f.png", title="t")
    axes = drawn[0].axes[0]
    assert axes.get_yscale() == "log"
    clib, er = axes.lines[:2]
    assert list(clib.get_xdata()) == [10, 40]
    assert clib.get_ydata() == pytest.approx([0.2, 0.2])
    assert er.get_ydata() == pytest.approx([1, np.nan], nan_ok=True)  # zero is nowhere on the axis
    (band,) = axes.collections
    assert {(x, round(y, 6)) for x, y in band.get_paths()[0].vertices} == {(10, 0.1), (10, 0.4), (40, 0.2)}
    assert [sorted(line.get_xdata()) for line in axes.lines if line.get_marker() == "|"] == [[1, 5, 7, 21]]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "None"] == [20]
    named = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert named == ["CLIB, n = 2", r"e\$r, n = 1", "first sample of a class"]


def test_the_figure_says_what_the_band_is_and_of_how_many_seeds(drawn, tmp_path, records):
    three = [records(seed) for seed in (1, 2, 3)]
    draw_curves({"": {"clib": three, "er": three[:1]}}, tmp_path / "f.png")
    draw_curves({"": {"clib": three[:1]}}, tmp_path / "f.png")
    uneven, single = (figure.legends[0] for figure in drawn)
    assert uneven.get_title().get_text() == "line and band: mean ± std, n = 1 to 3 seeds"
    assert [text.get_text().partition("  ")[0] for text in uneven.get_texts()] == ["CLIB, n = 3", "ER, n = 1"]
    assert single.get_title().get_text() == "n = 1 seed"  # there is no band


def joint(seed: int) -> list[Record]:
    """Trained when the stream has ended, and asked then alone."""
    return [one for one in run(seed, asked=False) if not isinstance(one, TaskEnd) or one.at == 400]


def test_joint_is_a_point_at_the_end_and_no_curve(drawn, tmp_path, records):
    draw_curves({"": {"joint": [joint(1), joint(2)], "er": [records(1), records(2)]}}, tmp_path / "f.png")
    axes = drawn[0].axes[0]
    finals = [100 * (a_last(joint(seed)) or 0) for seed in (1, 2)]
    (point,) = axes.containers
    assert [list(data) for data in point.lines[0].get_data()] == [[400], [pytest.approx(np.mean(finals))]]
    label = drawn[0].legends[0].get_texts()[-1].get_text()
    assert label.startswith("Joint, asked at the end only")
    (level,) = (line for line in axes.lines if list(line.get_xdata()) == [0, 1] and line.get_linestyle() == "--")
    assert level.get_marker() == "None"
    assert level.get_label().startswith("_")  # the legend shows the point


def spent(at, tflops, queries=7):
    flops = {"training": int(tflops * 1e12), "queries": int(queries * 1e12)}
    return Spent(at, 0, {"training": 1, "queries": 1}, {"training": 1, "queries": 0}, flops, {"memory": 1})


def counted(*tflops, seed=0, **changes):
    """A journal of two tasks whose training took so much until the end of each."""
    return run(seed, **changes) + [spent(200 * (task + 1), amount) for task, amount in enumerate(tflops)]


def at_updates(records, updates):
    """The same journal, with this many updates by samples seen."""
    return [
        replace(one, updates=updates(one.at)) if isinstance(one, Query) else one
        for one in records
        if not isinstance(one, TaskEnd)
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
    once = [one for one in counted(5, 9, asked=False) if not isinstance(one, TaskEnd) or one.at == 400]
    runs = {"er": [counted(1, 2, seed=1), counted(1, 2, seed=2)], "clib": [counted(10, 20, seed=3)], "joint": [once]}
    for x in ("flops", "samples"):
        draw_curves({"": runs}, tmp_path / "f.png", x=x, title="Title")
    axes, plain = (figure.axes[0] for figure in drawn)
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "training TFLOPs, log scale")
    er, clib = (line.get_xdata() for line in axes.lines[:2])
    assert er == pytest.approx(np.arange(20, 401, 20) / 200)
    assert clib == pytest.approx(10 * er)
    for one, other in zip(axes.lines[:2], plain.lines[:2], strict=True):
        assert one.get_ydata() == pytest.approx(other.get_ydata())
    (point,) = axes.containers
    assert point.lines[0].get_xdata() == pytest.approx([9])  # asked once, when all was spent


def test_before_the_first_update_there_is_no_place_on_the_axis(drawn, tmp_path):
    late = at_updates(counted(1, 2), lambda at: max(0, at - 60))
    draw_curves({"": {"er": [late]}}, tmp_path / "f.png", x="flops")
    (line,) = drawn[0].axes[0].lines
    assert np.isnan(line.get_xdata()[:3]).all()
    low, high = drawn[0].axes[0].get_xlim()
    assert 0 < low < line.get_xdata()[3] < high


def test_refusals(tmp_path):
    for nothing in ({}, {"N=0": {}}):
        for draw in (draw_curves, draw_rates):
            with pytest.raises(InputError):
                draw(nothing, tmp_path / "f.png")
    with pytest.raises(InputError, match="'er'"):
        shared_rate("er", [rated([1], [1.0]), rated([2], [1.0])])
    with pytest.raises(InputError, match="jpg"):
        draw_curves({"": {"er": [short_run(1)]}}, tmp_path / "f.jpg")
    assert list(tmp_path.iterdir()) == []
