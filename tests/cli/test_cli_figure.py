"""`iblurry figure`: from finished runs to a file."""

from __future__ import annotations

import json

import pytest

from iblurry.analysis.figures import draw
from iblurry.cli.options import split_names
from iblurry.studies import catalogue
from iblurry.studies.selection import Selection
from iblurry.studies.study import Study
from tests.studies.written import spend, usual, write_run

SWEEP = Study(
    name="sizes",
    title="Sizes",
    shows=(),
    question="How much memory?",
    datasets=("cifar10", "digits"),
    rows=("er", "clib terms=CrossEntropy", "clib"),
    columns=lambda dataset: {"K=200": {"memory": 200}, "K=500": {}},
    metrics=("a_avg", "a_auc"),
)


@pytest.fixture
def runs(here):
    """Two methods of the study "main", one seed missing; one run is in both of the usual places."""
    for method, level in (("er", 58), ("clib", 71)):
        for seed in (1, 2):
            write_run(here / "results/cifar10", usual(method, seed), level)
    write_run(here / "runs", usual("clib", 1), 20)


@pytest.fixture
def asked(monkeypatch):
    """What is drawn, and from what."""
    calls = []

    def keep(table, kind, path, *, x):
        path.write_bytes(b"drawn")
        runs = [result for *_, result in table.all_runs]
        calls.append((kind, [str(result.folder.parent) for result in runs], table.metrics[0].name))

    monkeypatch.setattr(draw, "draw_study", keep)
    return calls


@pytest.fixture
def sizes(monkeypatch):
    monkeypatch.setitem(catalogue.STUDIES, "sizes", SWEEP)
    monkeypatch.setitem(catalogue.STUDIES, "ablation", Study(**vars(SWEEP) | {"name": "ablation"}))


def test_a_figure_and_what_is_missing(runs, call, here):
    there = ("--runs", "runs", "--runs", "results")
    said = call("figure", "main", *there)
    assert said.code == 0
    assert said.out == "Figure: figures/main-cifar10-curves.png (curves, runs: 4)\n"
    assert "18 of 22 runs are missing: joint; ewc" in said.err
    assert "joint; ewc; bic; mir; gdumb; rm; er seed 3; clib seed 3." in said.err
    first = (here / "figures/main-cifar10-curves.png").read_bytes()
    call("figure", "main", "--dataset", "cifar10", *there, "--out", "again.png")
    assert (here / "again.png").read_bytes() == first


@pytest.mark.quick("bars")
@pytest.mark.parametrize("kind", ["bars", "rates", "forgetting"])
def test_every_kind_is_drawn(runs, call, here, kind):
    said = call("figure", "main", "--kind", kind, "--out", f"new/{kind}.svg", "--methods", "clib,er")
    assert said.code == 0, said.err
    assert (here / f"new/{kind}.svg").read_bytes().startswith(b"<?xml")
    assert said.out == f"Figure: new/{kind}.svg ({kind}, runs: 4)\n"


def test_the_first_place_counts_and_places_can_be_named(runs, call, asked):
    call("figure", "main", "--methods", "clib")
    call("figure", "main", "--runs", "results/cifar10", "--runs", "runs", "--methods", "clib", "--methods", "er,")
    assert [folders for _, folders, _ in asked] == [["runs", "results/cifar10"], ["results/cifar10"] * 4]


def test_the_kind_that_suits(runs, sizes, call, asked):
    for study in ("main", "sizes", "ablation"):
        assert call("figure", study).code == 0
    call("figure", "sizes", "--kind", "bars", "--metric", "f_last")
    assert [(kind, metric) for kind, _, metric in asked] == [
        ("curves", "a_auc"),
        ("sweep", "a_avg"),
        ("bars", "a_avg"),
        ("bars", "f_last"),
    ]


def test_a_row_may_have_a_comma_of_its_own():
    rows = ("er", "er terms=A,B", "clib")
    assert split_names(("clib,er",), rows) == ("clib", "er")
    assert split_names(("er terms=A,B", " clib ,"), rows) == ("er terms=A,B", "clib")
    assert split_names((), rows) is None


def test_another_selection_does_not_take_the_last_figures_place(runs, call, asked, here):
    for chosen in (
        *([], ["--methods", "clib"], ["--methods", "er,clib"], ["--seeds", "1-2"], ["--seeds", "1"]),
        *(["--kind", "bars"], ["--kind", "bars", "--metric", "f_last"]),
    ):
        said = call("figure", "main", *chosen)
        assert said.code == 0, said.err
    assert len(list((here / "figures").iterdir())) == len(asked) == 7
    assert (here / "figures/main-cifar10-clib-curves.png").exists()
    call("figure", "main", "--kind", "bars", "--metric", "a_auc")
    assert len(list((here / "figures").iterdir())) == 7  # which is the study's first metric


def test_equal_compute_is_in_the_title_and_in_the_name(call, here, monkeypatch):
    for planned in Selection(
        study=catalogue.get_study("main"), dataset="cifar10", rows=("er",), seeds=(1,), equal_compute="clib"
    ).planned:
        write_run(here / "runs", planned.experiment, 60)
    titles = []
    monkeypatch.setitem(draw.FIGURE_KINDS, "curves", lambda table, path: (titles.append(table.caption), path.touch()))
    said = call("figure", "main", "--methods", "er", "--seeds", "1", "--equal-compute", "clib")
    assert "figures/main-cifar10-er-seeds-1-equal-compute-clib-curves.png" in said.out
    assert "equal compute (of clib)" in titles[0]


def test_equal_bytes_are_in_the_title_and_in_the_name(call, here, monkeypatch):
    chosen = {"rows": ("er",), "seeds": (1,), "equal_bytes": "clib memory=90"}
    (planned,) = Selection(study=catalogue.get_study("main"), dataset="digits", **chosen).planned
    assert planned.experiment.memory > 90
    write_run(here / "runs", planned.experiment, 60)
    titles = []
    monkeypatch.setitem(draw.FIGURE_KINDS, "curves", lambda table, path: (titles.append(table.caption), path.touch()))
    said = call(
        "figure", "main", "--dataset", "digits", "--methods", "er", "--seeds", 1, "--equal-bytes", "clib memory=90"
    )
    assert said.code == 0, said.err
    assert "equal-bytes-clib-memory-90-curves.png" in said.out
    assert "equal bytes (of clib memory=90)" in titles[0]


@pytest.mark.slow
def test_flops_are_an_axis_and_a_kind(runs, call, here):
    chosen = ("figure", "main", "--methods", "clib,er", "--seeds", "2")
    said = call(*chosen, "--x", "flops")
    assert said.code == 2
    assert list(here.glob("figures/*")) == []  # of runs that did not count
    for number, method in enumerate(("er", "clib")):
        spend(here / "results/cifar10" / usual(method, 2).name, training=1000, losses=5000 * number, queries=9)
    assert (
        "figures/main-cifar10-clib-er-seeds-2-curves-flops.png (curves, runs: 2)" in call(*chosen, "--x", "flops").out
    )
    for metric in ("a_auc", "forgetting"):
        assert call(*chosen, "--kind", "flops", "--metric", metric).code == 0
    assert (here / "figures/main-cifar10-clib-er-seeds-2-flops.png").exists()
    about = json.loads(call(*chosen, "--x", "flops", "--json").out)
    assert (about["kind"], about["x"]) == ("curves", "flops")
    assert json.loads(call(*chosen, "--kind", "bars", "--json").out)["x"] is None
    for wrong in (("--kind", "bars", "--x", "flops"), ("--x", "seconds"), ("--kind", "rates", "--x", "samples")):
        said = call(*chosen, *wrong)
        assert said.code == 2
        assert wrong[-1] in said.err


def test_json(runs, call):
    about = json.loads(call("figure", "main", "--methods", "er", "--kind", "bars", "--json").out)
    assert (about["figure"], about["kind"]) == ("figures/main-cifar10-er-bars.png", "bars")
    assert (about["study"], about["dataset"]) == ("main", "cifar10")
    assert about["runs"] == [f"results/cifar10/{usual('er', seed).name}" for seed in (1, 2)]
    assert about["missing"] == [usual("er", 3).name]


def test_refusals(runs, sizes, refused, here):
    for word, *arguments in (
        ("'main'", "mian"),
        ("'curves'", "main", "--kind", "curve"),
        ("'a_auc'", "main", "--kind", "bars", "--metric", "auc"),
        ("a_avg", "main", "--metric", "a_avg"),  # curves show no metric
        ("'clib'", "main", "--methods", "clip"),
        (".jpg", "main", "--out", "figure.jpg"),
        ("study main ", "main", "--kind", "sweep"),
        ("study sizes ", "sizes", "--only", "K=200", "--kind", "sweep"),
        ("`iblurry study main --dataset tinyimagenet`", "main", "--dataset", "tinyimagenet"),
        ("--runs elsewhere", "sizes", "--runs", "elsewhere"),
    ):
        assert word in refused("figure", *arguments)


def test_journals_that_do_not_say_what_the_memory_held(runs, call, here):
    said = call("figure", "main", "--methods", "er", "--kind", "composition")
    assert said.code == 2
    assert "memory" in said.err
    assert not (here / "figures").exists() or not list((here / "figures").iterdir())
