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
    assert (said.code, said.out) == (0, "Figure: figures/main-cifar10-curves.png (curves, runs: 4)\n")
    assert "18 of 22 runs are missing: joint; ewc; bic; mir; gdumb; rm; er seed 3; clib seed 3." in said.err
    first = (here / "figures/main-cifar10-curves.png").read_bytes()
    call("figure", "main", "--dataset", "cifar10", *there, "--out", "again.png")
    assert (here / "again.png").read_bytes() == first


@pytest.mark.quick("bars")
@pytest.mark.parametrize("kind", ["bars", "rates", "forgetting"])
def test_every_kind_is_drawn(runs, call, here, kind):
    said = call("figure", "main", "--kind", kind, "--out", f"new/{kind}.svg", "--methods", "clib,er", "--json")
    about = json.loads(said.out)
    assert (about["figure"], about["kind"], about["x"]) == (f"new/{kind}.svg", kind, None)
    assert (about["study"], about["dataset"], len(about["runs"])) == ("main", "cifar10", 4)
    assert about["missing"] == [usual(method, 3).name for method in ("clib", "er")]
    assert (here / f"new/{kind}.svg").read_bytes().startswith(b"<?xml")


def test_the_first_place_counts_and_places_can_be_named(runs, call, asked):
    call("figure", "main", "--methods", "clib")
    call("figure", "main", "--runs", "results/cifar10", "--runs", "runs", "--methods", "clib", "--methods", "er,")
    assert [folders for _, folders, _ in asked] == [["runs", "results/cifar10"], ["results/cifar10"] * 4]


def test_the_kind_that_suits(runs, sizes, call, asked):
    for study in ("main", "sizes", "ablation"):
        assert call("figure", study, "--methods", "er,clib").code == 0
    call("figure", "sizes", "--kind", "bars", "--metric", "f_last")
    assert [(kind, metric) for kind, _, metric in asked] == [
        *(("curves", "a_auc"), ("sweep", "a_avg"), ("bars", "a_avg"), ("bars", "f_last")),
    ]


def test_a_row_may_have_a_comma_of_its_own():
    rows = ("er", "er terms=A,B", "clib")
    assert split_names(("clib,er",), rows) == ("clib", "er")
    assert split_names(("er terms=A,B", " clib ,"), rows) == ("er terms=A,B", "clib")
    assert split_names((), rows) is None


def test_another_selection_does_not_take_the_last_figures_place(runs, call, asked, here):
    bars = ("--methods", "clib", "--kind", "bars")
    for words in (["--methods", "clib"], ["--methods", "er,clib"], ["--methods", "clib", "--seeds", "1"]):
        assert call("figure", "main", *words).code == 0
    for words in (bars, (*bars, "--metric", "f_last")):
        assert call("figure", "main", *words).code == 0
    assert len(list((here / "figures").iterdir())) == len(asked) == 5
    assert (here / "figures/main-cifar10-clib-curves.png").exists()
    call("figure", "main", *bars, "--metric", "a_auc")
    assert len(list((here / "figures").iterdir())) == 5  # which is the study's first metric


@pytest.mark.parametrize(
    "option, reference, words",
    [
        ("equal_compute", "clib", "equal compute (of clib)"),
        ("equal_bytes", "clib memory=90", "equal bytes (of clib memory=90)"),
    ],
)
def test_what_is_equal_is_in_the_title_and_in_the_name(call, here, monkeypatch, option, reference, words):
    chosen = {"dataset": "digits", "rows": ("er",), "seeds": (1,), option: reference}
    (planned,) = Selection(study=catalogue.get_study("main"), **chosen).planned
    write_run(here / "runs", planned.experiment, 60)
    titles, name = [], option.replace("_", "-")
    monkeypatch.setitem(draw.FIGURE_KINDS, "curves", lambda table, path: (titles.append(table.caption), path.touch()))
    said = call("figure", "main", "--dataset", "digits", "--methods", "er", "--seeds", 1, f"--{name}", reference)
    assert f"figures/main-digits-er-seeds-1-{name}-clib" in said.out
    assert words in titles[0]


@pytest.mark.slow
def test_flops_are_an_axis_and_a_kind(runs, call, here):
    chosen = ("figure", "main", "--methods", "clib,er", "--seeds", "2")
    assert call(*chosen, "--x", "flops").code == 2
    assert list(here.glob("figures/*")) == []  # of runs that did not count
    for number, method in enumerate(("er", "clib")):
        spend(here / "results/cifar10" / usual(method, 2).name, training=1000, losses=5000 * number, queries=9)
    about = json.loads(call(*chosen, "--x", "flops", "--json").out)
    assert (about["kind"], about["x"]) == ("curves", "flops")
    assert about["figure"] == "figures/main-cifar10-clib-er-seeds-2-curves-flops.png"
    for metric in ("a_auc", "forgetting"):
        assert call(*chosen, "--kind", "flops", "--metric", metric).code == 0
    assert (here / "figures/main-cifar10-clib-er-seeds-2-flops.png").exists()


@pytest.mark.parametrize(
    "named, words",
    [
        ("'main'", "mian"),
        ("'curves'", "main --kind curve"),
        ("'a_auc'", "main --kind bars --metric auc"),
        ("a_avg", "main --metric a_avg"),  # curves show no metric
        ("'clib'", "main --methods clip"),
        (".jpg", "main --out figure.jpg"),
        ("study main ", "main --kind sweep"),
        ("study sizes ", "sizes --only K=200 --kind sweep"),
        ("`iblurry study main --dataset tinyimagenet`", "main --dataset tinyimagenet"),
        ("--runs elsewhere", "sizes --runs elsewhere"),
        ("flops", "main --kind bars --x flops"),
        ("seconds", "main --x seconds"),
        ("samples", "main --kind rates --x samples"),
    ],
)
def test_refusals(runs, sizes, refused, named, words):
    assert named in refused("figure", *words.split())
