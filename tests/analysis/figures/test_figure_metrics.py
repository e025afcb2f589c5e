"""One metric per method: over what a study varies, as bars, and against FLOPs."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from iblurry.analysis.describe import display_name
from iblurry.analysis.figures.metrics import draw_bars, draw_flops, draw_sweep, metric_label, place_columns, undominated
from iblurry.analysis.figures.style import COLOURS
from iblurry.analysis.table import PaperNumber
from iblurry.errors import InputError, UnknownNameError
from iblurry.studies.catalogue import STUDIES
from tests.analysis.figures.conftest import METHODS, look


def ours(columns, methods=METHODS, seeds=3):
    rng = np.random.default_rng(0)
    return {c: {m: list(40 + 4 * i + rng.normal(0, 1, seeds)) for i, m in enumerate(methods)} for c in columns}


def points(container):
    line, _, (bars,) = container.lines
    ends = [segment[:, 1] if len(segment) else np.array([np.nan] * 2) for segment in bars.get_segments()]
    return np.array(line.get_xdata()), np.array(line.get_ydata()), np.array([np.ptp(pair) / 2 for pair in ends])


def test_means_spreads_and_the_papers_numbers_are_what_is_drawn(drawn, tmp_path):
    cells = ours(["N=0", "N=50", "N=100"], ["er", "clib"])
    paper = {"N=50": {"clib": PaperNumber(70.26, 1.1, (1,)), "bic": PaperNumber(9.0, 1.0, (1,))}}
    draw_sweep(cells, tmp_path / "f.png", paper=paper, title="t")
    axes = drawn[0].axes[0]
    er, clib, theirs, _ = axes.containers
    for container, method in ((er, "er"), (clib, "clib")):
        _, mean, spread = points(container)
        assert mean == pytest.approx([np.mean(cells[column][method]) for column in cells])
        assert spread == pytest.approx([np.std(cells[column][method], ddof=1) for column in cells])
    at, mean, _ = points(theirs)
    assert mean == pytest.approx([np.nan, 70.26, np.nan], nan_ok=True)
    assert at[1] > points(clib)[0][1]  # to the right of ours
    assert theirs.lines[0].get_markerfacecolor() == "white"
    assert theirs.lines[0].get_color() == clib.lines[0].get_color()
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["ER", "CLIB", "the paper's"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "50", "100"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("disjoint classes N (%)", r"$A_{\mathrm{AUC}}$ (%)")


def test_a_missing_cell_is_a_gap_and_one_seed_has_no_bar(drawn, tmp_path):
    cells = ours(["K=200", "K=500", "K=1000"], ["er"], seeds=1) | {"K=500": {"clib": [50.0, 60.0]}}
    draw_sweep(cells, tmp_path / "f.png")
    er, clib = drawn[0].axes[0].containers
    assert np.isnan(points(er)[1]).tolist() == [False, True, False]
    assert np.isnan(points(er)[2]).all()
    assert points(clib)[1] == pytest.approx([np.nan, 55, np.nan], nan_ok=True)
    assert [label.get_text() for label in drawn[0].axes[0].get_xticklabels()] == ["200", "500", "1,000"]


@pytest.mark.parametrize(
    "columns, places, scale",
    [
        (["N=0", "N=10", "N=50", "N=100"], [0, 0.1, 0.5, 1], ""),
        (["K=100", "K=1000", "K=10000"], [0, 0.5, 1], "log scale"),
        (["N=0", "N=0.1", "N=100"], [0, 0.5, 1], "evenly spaced"),
        (["T=20", "T=5", "T=10"], [1, 0, 1 / 3], ""),
        (["N=0", "M=10", "K=5"], [0, 0.5, 1], ""),
        (["with", "without", "half"], [0, 0.5, 1], ""),
        (["N=1", "N=1.0", "N=2"], [0, 0.5, 1], ""),
        (["N=5"], [0.5], ""),
    ],
)
def test_numbers_stand_to_scale(columns, places, scale):
    at, said = place_columns(columns)
    assert (at.tolist(), said) == (pytest.approx(places), scale)


@pytest.mark.quick("columns0", "columns3")
@pytest.mark.parametrize(
    "columns",
    [
        ["N=0", "N=10", "N=50", "N=100"],
        ["T=5", "T=10", "T=50", "T=100", "T=200"],
        ["N=50 M=10", "N=100 M=0", "i-Blurry-50-10 with a reservoir"],
        [f"a column with a long name, number {n}" for n in range(9)],
        [f"averyveryverylongword{n}" for n in range(9)],
        [""],
    ],
)
def test_ten_methods_and_all_kinds_of_columns(drawn, tmp_path, columns):
    paper = {column: {"er": PaperNumber(50.0, None, (1,))} for column in columns}
    draw_sweep(ours(columns), tmp_path / "f.png", metric="f_last", paper=paper, title="t")
    lines = [container.lines[0] for container in drawn[0].axes[0].containers]
    own = [line for line in lines if line.get_linestyle() != "None"]
    assert len({look(line) for line in own}) == 10
    left, right = drawn[0].axes[0].get_xlim()
    at = [x for line in lines for x in line.get_xdata()]
    assert left < min(at) <= max(at) < right
    table = np.array([sorted(line.get_xdata()) for line in own])
    assert (np.diff(table, axis=0) > 0).all()  # beside each other
    assert (table[:, :-1].max(axis=0) < table[:, 1:].min(axis=0)).all()  # no two of different columns meet


@pytest.mark.parametrize("name", ["disjoint", "blur", "memory", "tasks"])
def test_the_axis_says_in_words_what_a_study_varies(drawn, tmp_path, name):
    columns = list(STUDIES[name].columns("cifar100"))
    draw_sweep(ours(columns), tmp_path / "f.png")
    assert f" {columns[0].partition('=')[0]}" in drawn[0].axes[0].get_xlabel()


BARS = {"": {"er": [60.0, 61.5, 58.5], "clib": [70.0, 72.0], "gdumb": [40.0]}}


def test_bars_are_means_dots_are_seeds_and_whiskers_spreads(drawn, tmp_path):
    paper = {"": {"clib": PaperNumber(70.26, 1.0, (1,)), "bic": PaperNumber(9.0, 1.0, (1,))}}
    draw_bars(BARS, tmp_path / "f.png", paper=paper)
    axes = drawn[0].axes[0]
    shown = axes.patches
    assert [(bar.get_x(), bar.get_width()) for bar in shown] == [(0, 60), (0, 71), (0, 40)]
    assert len({bar.get_hatch() for bar in shown}) == 3
    assert [to_hex(bar.get_edgecolor()).upper() for bar in shown] == [COLOURS[1], COLOURS[0], COLOURS[6]]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [list(line.get_xdata()) for line in dots] == list(BARS[""].values())
    for number, line in enumerate(dots):
        assert np.abs(np.array(line.get_ydata()) - number).max() < 0.34  # on its bar
    whiskers = [c.lines[2][0].get_segments()[0][:, 0] for c in axes.containers if hasattr(c, "has_xerr")]
    assert whiskers == [pytest.approx([58.5, 61.5]), pytest.approx([71 - 2**0.5, 71 + 2**0.5])]
    (theirs,) = (line for line in axes.lines if line.get_marker() == "v")
    assert (list(theirs.get_xdata()), round(theirs.get_ydata()[0])) == ([70.26], 1)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ER, n = 3", "CLIB, n = 2", "GDumb, n = 1"]
    values = [label.get_text() for label in axes.child_axes[0].get_yticklabels()]
    assert values == ["60.0 ± 1.5", "71.0 ± 1.4", "40.0"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first at the top
    assert {text.get_text() for text in drawn[0].legends[0].get_texts()} == {"a seed", "the paper's mean"}
    assert drawn[0].legends[0].get_title().get_text() == "bar and whisker: mean ± std, n = 1 to 3 seeds"


@pytest.mark.parametrize("columns", [1, 3])
def test_bars_of_ten_methods_in_columns(drawn, tmp_path, columns):
    cells = {f"N={n}": {m: [10.0 * k - 20, 10.0 * k] for k, m in enumerate(METHODS)} for n in range(columns)}
    draw_bars(cells, tmp_path / "f.png", metric="f_last", title="t")
    assert len({axes.get_xlim() for axes in drawn[0].axes}) == 1
    for axes in drawn[0].axes:
        assert [bar.get_width() for bar in axes.patches] == [10 * k - 10 for k in range(10)]
    for axes in drawn[0].axes[::2]:  # those at the left
        names = [label.get_text().replace("\n", " ") for label in axes.get_yticklabels()]
        assert names == [display_name(row) for row in METHODS]


def test_a_method_stands_on_one_level_in_all_columns(drawn, tmp_path):
    draw_bars({"N=0": {"er": [1.0], "bic": [2.0], "clib": [3.0]}, "N=50": {"clib": [4.0]}}, tmp_path / "f.png")
    first, second = drawn[0].axes
    assert second.patches[0].get_y() == first.patches[2].get_y()
    assert second.patches[0].get_edgecolor() == first.patches[2].get_edgecolor()


def test_flops_of_many_methods_with_long_names_have_room(drawn, tmp_path):
    cells = {name: {row: [(2.0**n, 40 + n), (2.1**n, 41 + n)] for n, row in enumerate(METHODS)} for name in ("a", "b")}
    draw_flops(cells, tmp_path / "f.png", metric="aaa", title="Title")
    draw_flops({"": cells["a"]}, tmp_path / "f.png", metric="forgetting")
    assert len(drawn[1].axes[0].containers) == len(METHODS)


def test_who_is_beaten_with_fewer_flops_is_not_on_the_line():
    points = [(3, 70), (1, 50), (2, 40), (4, 65), (9, 80)]
    assert undominated(points) == [1, 0, 4]
    assert undominated(points, sign=-1) == [1, 2]


@pytest.mark.parametrize("draw", [draw_sweep, draw_bars, draw_flops])
def test_nothing_to_draw(tmp_path, draw):
    with pytest.raises(InputError, match="f_last"):
        draw({}, tmp_path / "f.png", metric="f_last")
    with pytest.raises(UnknownNameError, match="a_acu"):
        metric_label("a_acu")
