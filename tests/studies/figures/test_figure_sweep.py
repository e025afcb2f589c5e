import numpy as np
import pytest

from iblurry.errors import InputError
from iblurry.studies.catalogue import STUDIES
from iblurry.studies.figures.sweep import places, sweep
from iblurry.studies.paper import Number
from tests.studies.figures.conftest import METHODS


def ours(columns, methods=METHODS, seeds=3):
    rng = np.random.default_rng(0)
    return {c: {m: list(40 + 4 * i + rng.normal(0, 1, seeds)) for i, m in enumerate(methods)} for c in columns}


def points(container):
    line, _, (bars,) = container.lines
    ends = [segment[:, 1] if len(segment) else np.array([np.nan] * 2) for segment in bars.get_segments()]
    return np.array(line.get_xdata()), np.array(line.get_ydata()), np.array([np.ptp(pair) / 2 for pair in ends])


def test_means_spreads_and_the_papers_numbers_are_what_is_drawn(drawn, tmp_path):
    cells = ours(["N=0", "N=50", "N=100"], ["er", "clib"])
    paper = {"N=50": {"clib": Number(70.26, 1.1, (1,)), "bic": Number(9.0, 1.0, (1,))}}
    sweep(cells, tmp_path / "f.png", paper=paper, title="t")
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
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["er", "clib", "the paper's"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "50", "100"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("disjoint classes N (%)", r"$A_{\mathrm{AUC}}$ (%)")


def test_a_missing_cell_is_a_gap_and_one_seed_has_no_bar(drawn, tmp_path):
    cells = ours(["K=200", "K=500", "K=1000"], ["er"], seeds=1) | {"K=500": {"clib": [50.0, 60.0]}}
    sweep(cells, tmp_path / "f.png")
    er, clib = drawn[0].axes[0].containers
    assert np.isnan(points(er)[1]).tolist() == [False, True, False]
    assert np.isnan(points(er)[2]).all()
    assert points(clib)[1] == pytest.approx([np.nan, 55, np.nan], nan_ok=True)
    assert [label.get_text() for label in drawn[0].axes[0].get_xticklabels()] == ["200", "500", "1,000"]


def test_numbers_stand_to_scale():
    at, scale = places(["N=0", "N=10", "N=50", "N=100"])
    assert (at.tolist(), scale) == ([0, 0.1, 0.5, 1], "")
    at, scale = places(["K=100", "K=1000", "K=10000"])
    assert at == pytest.approx([0, 0.5, 1])
    assert scale == "log scale"
    at, scale = places(["N=0", "N=0.1", "N=100"])
    assert (at.tolist(), scale) == ([0, 0.5, 1], "evenly spaced")
    at, scale = places(["T=20", "T=5", "T=10"])
    assert at == pytest.approx([1, 0, 1 / 3])
    for names in (["N=0", "M=10", "K=5"], ["with", "without", "half"], ["N=1", "N=1.0", "N=2"]):
        assert [names and list(places(names)[0])] == [[0, 0.5, 1]]
    assert places(["N=5"])[0].tolist() == [0.5]


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
    cells = ours(columns)
    paper = {column: {"er": Number(50.0, None, (1,))} for column in columns}
    sweep(cells, tmp_path / "f.png", metric="f_last", paper=paper, title="t")
    lines = [container.lines[0] for container in drawn[0].axes[0].containers]
    assert len({(line.get_color(), line.get_marker()) for line in lines if line.get_linestyle() != "None"}) == 10
    left, right = drawn[0].axes[0].get_xlim()
    at = [x for line in lines for x in line.get_xdata()]
    assert left < min(at)
    assert max(at) < right


def test_no_two_methods_of_different_columns_meet(drawn, tmp_path):
    sweep(ours(["N=0", "N=10", "N=50", "N=100"]), tmp_path / "f.png")
    table = np.array([container.lines[0].get_xdata() for container in drawn[0].axes[0].containers])
    assert table[:, 0].max() < table[:, 1].min()
    assert (np.diff(table, axis=0) > 0).all()


@pytest.mark.parametrize("name", ["disjoint", "blur", "memory", "tasks"])
def test_the_axis_says_in_words_what_a_study_varies(drawn, tmp_path, name):
    columns = list(STUDIES[name].columns("cifar100"))
    sweep(ours(columns), tmp_path / "f.png")
    letter = columns[0].partition("=")[0]
    assert f" {letter}" in drawn[0].axes[0].get_xlabel()


def test_nothing_to_draw(tmp_path):
    with pytest.raises(InputError, match="No run has a number for f_last"):
        sweep({}, tmp_path / "f.png", metric="f_last")
