"""From finished runs to what is drawn."""

import numpy as np
import pytest

from iblurry.cli.figure import KINDS as OFFERED
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.journal import NewClass, Start
from iblurry.studies.figures import kinds
from iblurry.studies.figures.kinds import KINDS, draw, usual_kind
from iblurry.studies.study import Study, found
from tests.studies.figures.test_figure_composition import Held
from tests.studies.written import write_run

STUDY = Study(
    name="s",
    title="Title",
    shows=(),
    question="?",
    datasets=("cifar10",),
    rows=("er", "clib"),
    columns=lambda dataset: {"N=0": {"disjoint": 0}, "N=50": {}},
)


@pytest.fixture
def there(tmp_path):
    planned = STUDY.planned("cifar10", seeds=(1, 2))
    for number, one in enumerate(planned):
        write_run(tmp_path / "runs", one.experiment, 40 + 2 * number)
    return found(planned, [tmp_path / "runs"])


def areas(there, row, column):
    return [100 * r.metrics.a_auc for one, r in there.items() if (one.row, one.column) == (row, column)]


def test_sweep_and_bars_show_the_metric_beside_the_papers(there, drawn, tmp_path):
    draw("sweep", STUDY, there, tmp_path / "f.png")
    axes = drawn[0].axes[0]
    assert axes.get_title() == "Title: cifar10, 5 tasks, memory 500"
    ours = axes.containers[2].lines[0].get_ydata()  # er, its paper's, clib
    assert ours == pytest.approx([np.mean(areas(there, "clib", column)) for column in ("N=0", "N=50")])
    assert axes.containers[3].lines[0].get_ydata()[1] == 70.26
    draw("bars", STUDY, there, tmp_path / "f.png", metric="a_avg")
    assert drawn[1].axes[1].get_xlabel() == r"$A_{\mathrm{avg}}$ (%)"
    draw("bars", STUDY, there, tmp_path / "f.png")
    dots = [line for line in drawn[2].axes[0].lines if line.get_marker() == "o"]
    assert list(dots[1].get_xdata()) == pytest.approx(areas(there, "clib", "N=0"))


def test_curves_and_rates_have_a_panel_per_column(there, drawn, tmp_path):
    for kind in ("curves", "rates"):
        draw(kind, STUDY, there, tmp_path / "f.png")
        assert [axes.get_title() for axes in drawn[-1].axes] == ["N=0", "N=50"]
        assert [text.get_text() for text in drawn[-1].legends[0].get_texts()][:2] == ["er", "clib"]


def test_forgetting_and_composition_show_the_first_seed(there, drawn, tmp_path):
    named = ["er, N=0, seed 1", "clib, N=0, seed 1", "er, N=50, seed 1", "clib, N=50, seed 1"]
    draw("forgetting", STUDY, there, tmp_path / "f.png")
    assert [axes.get_title() for axes in drawn[0].axes[:-1:2]] == named
    for result in there.values():
        assert isinstance(result.records[0], Start)
        assert isinstance(result.records[1], NewClass)
        result.records.append(Held(at=100, rows=(result.experiment.seed,)))
    draw("composition", STUDY, there, tmp_path / "f.png")
    assert [axes.get_title() for axes in drawn[1].axes] == named
    assert [axes.get_ylim()[1] for axes in drawn[1].axes] == [1] * 4


def test_the_kind_that_suits():
    assert usual_kind(STUDY, 2) == "sweep"
    assert usual_kind(STUDY, 1) == "curves"
    assert usual_kind(Study(**vars(STUDY) | {"name": "ablation"}), 3) == "bars"


def test_the_command_offers_exactly_these_kinds():
    assert set(OFFERED) == set(KINDS)
    assert set(kinds.METRIC) <= set(KINDS)


def test_refusals(there, tmp_path):
    with pytest.raises(UnknownNameError, match="no kind of figure called 'pie'"):
        draw("pie", STUDY, there, tmp_path / "f.png")
    with pytest.raises(InputError, match="A figure of rates shows no metric; leave a_auc out, or draw sweep or bars"):
        draw("rates", STUDY, there, tmp_path / "f.png", metric="a_auc")
    with pytest.raises(InputError, match="The study s has no finished run to draw"):
        draw("rates", STUDY, {}, tmp_path / "f.png")
    with pytest.raises(InputError, match="do not say what the memory held"):
        draw("composition", STUDY, there, tmp_path / "f.png")
