"""Every kind of figure from finished runs, and as a file: the same bytes again, whatever the reader's settings."""

from dataclasses import replace

import matplotlib
import pytest

from iblurry.analysis.figures.draw import FIGURE_KINDS, WITH_METRIC, default_kind, draw_study
from iblurry.cli.study import KINDS as OFFERED
from iblurry.errors import InputError
from iblurry.experiment.journal import Held
from iblurry.studies.selection import Selection
from iblurry.studies.study import Study
from iblurry.studies.table import tabulate_study
from tests.studies.written import FLOPS, spend, tabulated, usual, write_run

STUDY = Study(
    name="s",
    title="Title",
    shows=(),
    question="?",
    datasets=("cifar10",),
    rows=("er", "clib"),
    columns=lambda dataset: {"N=0": {"disjoint": 0}, "N=50": {}},
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    for number, planned in enumerate(STUDY.plan("cifar10", seeds=(1, 2))):
        folder, *_ = write_run(out, planned.experiment, 40 + 2 * number)
        losses = 9000 * (planned.row == "clib")
        spend(folder, training=1000 + 100 * planned.experiment.seed, losses=losses, queries=10**6)
    return out


@pytest.fixture
def table(runs):
    return tabulated(STUDY, "cifar10", [runs], seeds=(1, 2), metrics=["a_auc"])


def test_sweep_and_bars_show_the_metric_beside_the_papers(table, runs, drawn, tmp_path):
    draw_study(table, "sweep", tmp_path / "f.png")
    axes = drawn[0].axes[0]
    assert axes.get_title() == "Title: cifar10, 5 tasks, memory 500"
    ours = axes.containers[2].lines[0].get_ydata()  # er, its paper's, clib
    assert ours == pytest.approx([table.ours("clib", column, "a_auc").mean for column in ("N=0", "N=50")])
    assert axes.containers[3].lines[0].get_ydata()[1] == 70.26
    draw_study(tabulated(STUDY, "cifar10", [runs], metrics=["a_avg"]), "bars", tmp_path / "f.png")
    assert drawn[1].axes[1].get_xlabel() == r"$A_{\mathrm{avg}}$ (%)"
    draw_study(table, "bars", tmp_path / "f.png")
    dots = [line for line in drawn[2].axes[0].lines if line.get_marker() == "o"]
    assert list(dots[1].get_xdata()) == pytest.approx([*table.by_seed("N=0", "a_auc")["clib"].values()])


def test_flops_are_those_of_training(table, drawn, tmp_path):
    draw_study(table, "flops", tmp_path / "f.png")
    assert [axes.get_title() for axes in drawn[0].axes] == ["N=0", "N=50"]
    for axes, column in zip(drawn[0].axes, ("N=0", "N=50"), strict=True):
        for container, row, losses in zip(axes.containers, ("er", "clib"), (0, 9000), strict=True):
            x, y = (data[0] for data in container.lines[0].get_data())
            assert x == pytest.approx(FLOPS * (3 * 1150 + losses) / 1e12)
            assert y == pytest.approx(table.ours(row, column, "a_auc").mean)
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["best for its FLOPs", "ER", "CLIB"]


def test_curves_and_rates_have_a_panel_per_column(table, runs, drawn, tmp_path):
    for kind in ("curves", "rates"):
        draw_study(table, kind, tmp_path / "f.png")
        assert [axes.get_title() for axes in drawn[-1].axes] == ["N=0", "N=50"]
        assert [text.get_text() for text in drawn[-1].legends[0].get_texts()][:2] == ["ER", "CLIB"]


def test_forgetting_and_composition_show_the_first_seed(table, runs, drawn, tmp_path):
    named = ["ER, N=0, seed 1", "CLIB, N=0, seed 1", "ER, N=50, seed 1", "CLIB, N=50, seed 1"]
    draw_study(table, "forgetting", tmp_path / "f.png")
    assert [axes.get_title() for axes in drawn[0].axes[:-1:2]] == named
    for *_, result in table.all_runs:
        result.records.append(Held(at=100, rows=(result.experiment.seed,)))
    draw_study(table, "composition", tmp_path / "f.png")
    assert [axes.get_title() for axes in drawn[1].axes] == named
    assert [axes.get_ylim()[1] for axes in drawn[1].axes] == [1] * 4


def test_the_kind_that_suits():
    assert default_kind("tiny", 2) == "sweep"
    assert default_kind("tiny", 1) == "curves"
    assert default_kind("ablation", 3) == "bars"


def test_the_command_offers_exactly_these_kinds():
    assert set(OFFERED) == set(FIGURE_KINDS)
    assert set(WITH_METRIC) <= set(FIGURE_KINDS)


def test_the_papers_probable_copy_errors_are_not_drawn(runs, drawn, tmp_path):
    doubtful = replace(STUDY, columns=lambda dataset: {"K=1000": {"memory": 1000}, "N=50": {}})
    for method in ("er", "clib"):
        write_run(tmp_path, usual(method, memory=1000), 60)
    draw_study(tabulated(doubtful, "cifar10", [tmp_path, runs], seeds=(1,)), "bars", tmp_path / "f.png")
    shown = [len(line.get_xdata()) for axes in drawn[0].axes for line in axes.lines if line.get_marker() == "v"]
    assert shown == [1, 2]  # of ER with a memory of 1,000 the paper prints another row's number


def test_a_sweep_that_varies_nothing_is_refused(table, runs, tmp_path):
    alone = replace(STUDY, columns=lambda dataset: {"": {}})
    with pytest.raises(InputError, match=r"study s .*curves or bars"):
        draw_study(tabulated(alone, "cifar10", [runs], seeds=(1,)), "sweep", tmp_path / "f.png")
    chosen = Selection(study=STUDY, dataset="cifar10", columns=("N=50",), seeds=(1,))
    with pytest.raises(InputError, match=r"study s .*N=50.*--only"):
        draw_study(tabulate_study(chosen, [runs]), "sweep", tmp_path / "f.png")
    assert list(tmp_path.iterdir()) == []


def test_refusals(table, tmp_path):
    with pytest.raises(InputError, match="memory"):
        draw_study(table, "composition", tmp_path / "f.png")
    with pytest.raises(InputError, match="study s "):
        draw_study(tabulated(STUDY, "cifar10", [tmp_path]), "rates", tmp_path / "f.png")


HEADS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.quick("sweep-png", "curves-svg", "rates-pdf")
@pytest.mark.parametrize("suffix", HEADS)
@pytest.mark.parametrize("kind", FIGURE_KINDS)
def test_the_same_bytes_twice(tmp_path, runs, kind, suffix):
    table = tabulated(STUDY, "cifar10", [runs], seeds=(1, 2), metrics=["a_auc"])
    for *_, result in table.all_runs:
        result.records.append(Held(at=100, rows=(result.experiment.seed,)))
    one, two = tmp_path / f"one.{suffix}", tmp_path / "new" / f"two.{suffix.upper()}"
    draw_study(table, kind, one)
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red", "image.cmap": "gray"}):
        before = dict(matplotlib.rcParams)
        draw_study(table, kind, two)
        assert dict(matplotlib.rcParams) == before
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes().startswith(HEADS[suffix])
    assert not [word for word in (b"CreationDate", b"<dc:date>", b"Software") if word in one.read_bytes()]
