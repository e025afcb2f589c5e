import numpy as np
import pytest
from matplotlib.colors import to_hex

from iblurry.errors import InputError
from iblurry.studies.figures.bars import bars
from iblurry.studies.paper import Number
from iblurry.studies.run_style import COLOURS
from tests.studies.figures.conftest import METHODS

CELLS = {"": {"er": [60.0, 61.5, 58.5], "clib": [70.0, 72.0], "gdumb": [40.0]}}


def test_bars_are_means_dots_are_seeds_and_whiskers_spreads(drawn, tmp_path):
    bars(CELLS, tmp_path / "f.png", paper={"": {"clib": Number(70.26, 1.0, (1,)), "bic": Number(9.0, 1.0, (1,))}})
    axes = drawn[0].axes[0]
    shown = axes.patches
    assert [bar.get_width() for bar in shown] == [60, 71, 40]
    assert [bar.get_x() for bar in shown] == [0, 0, 0]
    assert len({bar.get_hatch() for bar in shown}) == 3
    assert [to_hex(bar.get_edgecolor()).upper() for bar in shown] == list(COLOURS[:3])
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [list(line.get_xdata()) for line in dots] == list(CELLS[""].values())
    for number, line in enumerate(dots):
        assert np.abs(np.array(line.get_ydata()) - number).max() < 0.34  # on its bar
    whiskers = [c.lines[2][0].get_segments()[0][:, 0] for c in axes.containers if hasattr(c, "has_xerr")]
    assert whiskers == [pytest.approx([58.5, 61.5]), pytest.approx([71 - 2**0.5, 71 + 2**0.5])]
    (theirs,) = (line for line in axes.lines if line.get_marker() == "v")
    assert (list(theirs.get_xdata()), round(theirs.get_ydata()[0])) == ([70.26], 1)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["er", "clib", "gdumb"]
    values = [label.get_text() for label in axes.child_axes[0].get_yticklabels()]
    assert values == ["60.0 ± 1.5", "71.0 ± 1.4", "40.0"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first at the top
    assert {text.get_text() for text in drawn[0].legends[0].get_texts()} == {
        "a seed",
        "mean ± std",
        "the paper's mean",
    }


@pytest.mark.parametrize("columns", [1, 3])
def test_ten_methods_in_columns(drawn, tmp_path, columns):
    cells = {f"N={n}": {m: [10.0 * k - 20, 10.0 * k] for k, m in enumerate(METHODS)} for n in range(columns)}
    bars(cells, tmp_path / "f.png", metric="f_last", title="t")
    assert [axes.get_title() for axes in drawn[0].axes] == list(cells)
    assert len({axes.get_xlim() for axes in drawn[0].axes}) == 1
    for axes in drawn[0].axes:
        assert [bar.get_width() for bar in axes.patches] == [10 * k - 10 for k in range(10)]
    for axes in drawn[0].axes[::2]:  # those at the left
        assert [label.get_text().replace("\n", " ") for label in axes.get_yticklabels()] == list(METHODS)


def test_a_method_stands_on_one_level_in_all_columns(drawn, tmp_path):
    bars({"N=0": {"er": [1.0], "bic": [2.0], "clib": [3.0]}, "N=50": {"clib": [4.0]}}, tmp_path / "f.png")
    first, second = drawn[0].axes
    assert second.patches[0].get_y() == first.patches[2].get_y()
    assert second.patches[0].get_edgecolor() == first.patches[2].get_edgecolor()


def test_nothing_to_draw(tmp_path):
    with pytest.raises(InputError, match="No run has a number for a_auc"):
        bars({}, tmp_path / "f.png")
