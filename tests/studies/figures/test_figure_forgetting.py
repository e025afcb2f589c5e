import numpy as np
import pytest

from iblurry.errors import InputError
from iblurry.studies.figures.classes import classwise
from iblurry.studies.figures.forgetting import forgetting
from tests.studies.figures.conftest import METHODS


def test_tiles_are_accuracies_and_bars_are_what_was_lost(drawn, tmp_path, records):
    one = classwise(records(3, classes=8, tasks=4))
    forgetting({"clib, seed 1": one}, tmp_path / "f.png", title="t")
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


@pytest.mark.parametrize("classes, tasks, methods", [(100, 10, 3), (100, 20, 1), (10, 5, 10)])
def test_many_classes_tasks_and_methods(drawn, tmp_path, records, classes, tasks, methods):
    runs = {
        f"{method}, seed 1": classwise(records(n, classes=classes, tasks=tasks, samples=4000, every=100))
        for n, method in enumerate(METHODS[-methods:])
    }
    forgetting(runs, tmp_path / "f.png", title="t")
    assert len(drawn[0].axes) == 2 * methods + 1
    assert [axes.get_title().replace("\n", " ") for axes in drawn[0].axes[:-1:2]] == list(runs)
    assert len({axes.get_xlim() for axes in drawn[0].axes[1:-1:2]}) == 1


def test_one_task_has_nothing_to_lose(drawn, tmp_path, records):
    forgetting({"er": classwise(records(1, tasks=1))}, tmp_path / "f.png")
    assert drawn[0].axes[1].get_title() == ""


def test_nothing_to_draw(tmp_path):
    with pytest.raises(InputError, match="no runs to draw"):
        forgetting({}, tmp_path / "f.png")
