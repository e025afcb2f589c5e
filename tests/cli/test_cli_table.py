"""`iblurry table`: studies from the command line, where runs are looked for, and what is refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from iblurry import Gaussian, Published
from iblurry.analysis.formats import FORMATS
from iblurry.cli import study as module
from iblurry.studies import catalogue
from iblurry.studies.collect import read_run
from iblurry.studies.shipped import shipped_results
from tests.studies.written import TINY, usual, write_run, write_tiny

RESULTS = Path(__file__).parent.parent.parent / "results" / "drawn-orders"


@pytest.fixture
def tiny(here, monkeypatch):
    monkeypatch.setitem(catalogue.STUDIES, "tiny", TINY)
    return here


@pytest.fixture
def means(tiny, call):
    """A_AUC by row and column, of the study tiny."""

    def means(*words):
        about = json.loads(call("table", "tiny", *words, "--json").out)
        return {(one["row"], one["column"]): one["mean"] for one in about["cells"] if one["metric"] == "a_auc"}

    return means


def test_the_forms_are_those_of_the_library():
    assert tuple(FORMATS) == module.FORMATS
    assert {*module.ENDINGS.values(), "terminal"} == set(FORMATS)


def test_bold_is_spoken_of_where_there_is_bold(tiny, call, monkeypatch):
    write_tiny(tiny / "runs")
    assert "bold" not in call("table", "tiny").out  # no terminal
    call("table", "tiny", "--out", "t.txt")
    assert "bold" not in Path("t.txt").read_text()
    assert "bold" in call("table", "tiny", "--format", "markdown").out
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    said = call("table", "tiny").out
    assert "bold" in said
    assert "\x1b[1m" in said


def test_equal_compute_and_bytes_are_said(call):
    chosen = ("table", "main", "--dataset", "digits", "--methods", "er,clib", "--equal-bytes", "er memory=90")
    chosen += ("--equal-compute", "clib")
    said = call(*chosen).out
    for words in ("equal compute (of clib)", "equal bytes (of er memory=90)"):
        assert words in said.splitlines()[0]
    assert "--equal-bytes 'er memory=90'" in said  # the command that runs them
    assert all(row.endswith(",clib,er memory=90") for row in call(*chosen, "--format", "csv").out.splitlines()[1:])
    assert "tab:main-digits-er-clib-equal-" in call(*chosen, "--format", "latex").out
    about = json.loads(call(*chosen, "--json").out)
    assert (about["equal_compute"], about["equal_bytes"]) == ("clib", "er memory=90")


def test_this_repositorys_results(call):
    metrics = ("--metric", "a_auc,a_avg,f_last")
    said = call("table", "main", "--dataset", "cifar10", "--runs", RESULTS, "--pairs", *metrics)
    assert (said.code, said.err) == (0, "")
    lines = [line.split("  ") for line in said.out.splitlines()]
    rows = [[word.strip() for word in line if word.strip()] for line in lines]
    at = rows.index(["er", "ours", "58.32 ± 2.51 (3)", "62.79 ± 2.47 (3)", "26.81 ± 2.19 (3)"])
    assert rows[at + 1] == ["paper", "57.46 ± 2.25", "60.17 ± 2.96", "30.20 ± 2.96"]
    assert rows[at + 2] == ["difference", "+0.86 agrees", "+2.62 agrees", "-3.39 agrees"]
    words = " ".join(said.out.split())
    assert "clib over er: ahead on 3 of 3 seeds, +13.54 ± 0.09 points, 95 % t interval [+13.32, +13.75]" in words
    assert "\x1b" not in said.out
    assert max(map(len, said.out.splitlines()[1:])) <= 80


def test_runs_first_then_results(tiny, means):
    write_run(tiny / "runs", usual("er", 1), 50, wobble=0)
    for seed in (1, 2):
        write_run(tiny / "results" / "cifar10", usual("er", seed), 60, wobble=0)
    assert means()["er", "K=500"] == pytest.approx(55)
    named = means("--runs", "results")
    assert named["er", "K=500"] == pytest.approx(60)
    assert named == means("--runs", "results/cifar10")
    assert means("--runs", "results", "--runs", "runs")["er", "K=500"] == pytest.approx(60)


@pytest.mark.quick("main-8")
@pytest.mark.parametrize("study, cells", [("main", 8), ("leaderboard", 20)])
def test_the_packages_runs_are_tabulated_on_the_orders_they_have(call, study, cells):
    """Outside a checkout, too: the collected runs on the paper's own orders travel with the package."""
    said = call("table", study, "--dataset", "cifar10", "--json")
    about = json.loads(said.out)
    found = [one for one in about["cells"] if one["metric"] == "a_auc" and one["folders"]]
    assert (said.code, said.err, len(found), len(about["other_orders"])) == (0, "", cells, cells)
    for one in found:
        runs = [read_run(Path(folder)) for folder in one["folders"]]
        assert {Path(folder).is_relative_to(shipped_results()) for folder in one["folders"]} == {True}
        assert {run.experiment.stream.title for run in runs} == {"i-Blurry-50-10 (published)"}  # N = 0 lies there, too
        values = [run.metrics.a_auc for run in runs]
        assert one["mean"] is None or one["mean"] == pytest.approx(100 * sum(values) / len(values))
    assert {one["row"] for one in about["missing"]} <= {"er-averaged"}  # at BALM's compute, which nobody has run
    words = " ".join(call("table", study, "--dataset", "cifar10", "--format", "markdown").out.split())
    assert "All rows: our runs are on the orders of i-Blurry-50-10 (published)" in words


def test_planned_orders_first_and_other_orders_only_if_none_are_named(tiny, call, means):
    def streams(**fields):
        return Published(folder="splits", content="0123456789ab", **fields)

    for seed, level in ((1, 50), (2, 52)):
        write_run(tiny / "runs", replace(usual("er", seed), stream=streams()), level, wobble=0)
    write_run(tiny / "runs", replace(usual("er", 1), stream=streams(blur=30.0)), 90, wobble=0)  # another setup
    write_run(tiny / "runs", replace(usual("er", 1), stream=Gaussian()), 90, wobble=0)
    write_run(tiny / "runs", replace(usual("mir", 1), stream=streams(), memory=77), 90, wobble=0)
    chosen = ("--runs", "runs")
    assert means(*chosen)["er", "K=500"] == pytest.approx(51)
    assert "All rows: our runs are" in call("table", "tiny", *chosen).out
    assert means(*chosen, "--stream", "IBlurry")["er", "K=500"] is None
    for seed in (1, 2):
        write_run(tiny / "runs", usual("clib", seed), 70, wobble=0)
    said = call("table", "tiny", *chosen, "--pairs", "--only", "K=500", "--metric", "a_auc")
    assert "er K=500: our runs are on the orders of i-Blurry-50-10 (published)" in " ".join(said.out.split())
    assert "clib over er" not in said.out  # not the same orders, seed by seed
    write_run(tiny / "runs", usual("er", 1), 60, wobble=0)
    assert means(*chosen)["er", "K=500"] == pytest.approx(60)
    assert "our runs are on" not in call("table", "tiny", *chosen).out


def test_choices(tiny, call):
    write_tiny(tiny / "runs")
    said = call("table", "tiny", "--methods", "clib,er", "--methods", "clib-released", "--metric", "a_avg,a_last")
    assert "clib-released" in said.out
    assert "A_last ↑" in said.out
    assert "A_AUC" not in said.out
    assert "iblurry study tiny --dataset cifar10 --methods clib,er,clib-released" in said.out
    words = ("--methods", "clib,er", "--metric", "a_avg", "--no-paper", "--seeds", "1,2", "--json")
    about = json.loads(call("table", "tiny", *words).out)
    assert (about["rows"], about["metrics"], about["seeds"]) == (["clib", "er"], ["a_avg"], [1, 2])
    assert all(cell["paper"] is None for cell in about["cells"])
    against = call("table", "tiny", "--against", "er", "--json")
    assert [pair["second"] for pair in json.loads(against.out)["pairs"]] == ["er", "er"]


@pytest.mark.parametrize("name, start", [("t.txt", "Memory"), ("t.md", "###"), ("t.tex", "%"), ("t.csv", "study,")])
def test_the_ending_tells_the_form(tiny, call, name, start):
    write_tiny(tiny / "runs")
    said = call("table", "tiny", "--runs", "runs", "--out", f"deep/{name}")
    assert (said.code, said.out, said.err) == (0, f"deep/{name}: 12 cells, 7 runs missing\n", "")
    text = (tiny / "deep" / name).read_text("utf-8")
    assert text.startswith(start)
    assert "\x1b" not in text
    assert call("table", "tiny", "--out", name, "--json").code == 0  # against its ending
    assert json.loads((tiny / name).read_text("utf-8"))["study"] == "tiny"


@pytest.mark.parametrize(
    "named, words",
    [
        ("'STUDY'", ""),
        ("'main'", "mian"),
        ("'auc'", "tiny --metric auc"),
        ("'clib'", "tiny --methods clob"),
        ("'latex'", "tiny --format tex"),
        ("'cifar1'", "tiny --dataset cifar1"),
        ("--runs nowhere", "tiny --runs nowhere"),
        ("the folder that holds it, runs", "tiny --runs RUN"),
        ("--out t.html", "tiny --out t.html"),
        ("'runs'", "tiny --out runs --format csv"),
        ("file", "tiny --out file/t.md"),
        ("--format csv", "tiny --json --format csv"),
        ("--pairs", "tiny --format latex --pairs"),
        ("'gdumb'", "tiny --against gdumb"),
        ("--against mir", "tiny --runs runs --against mir"),  # it has no run
        ("twice", "tiny --seeds 1,1"),
        ("er is named 2 times", "tiny --methods er,er"),
    ],
)
def test_refusals(tiny, refused, named, words):
    run, *_ = write_run(tiny / "runs", usual("er", 1), 50, wobble=0)
    (tiny / "file").touch()
    assert named in refused("table", *words.replace("RUN", f"runs/{run.name}").split())
