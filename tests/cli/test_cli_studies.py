"""`iblurry dev collect` and `iblurry dev reproduction`: from runs to the page."""

from __future__ import annotations

import json

import pytest

from tests.studies.written import usual, write_run


@pytest.fixture
def runs(here):
    for seed in (1, 2):
        write_run(here / "runs", usual("clib", seed), 71)
    return sorted((here / "runs").iterdir())


def test_from_runs_to_the_page(runs, call, here):
    said = call("dev", "collect")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [f"results/cifar10/{run.name}: new" for run in runs]
    again = json.loads(call("dev", "collect", "runs", runs[0], "--json").out)
    assert again == [{"folder": f"results/cifar10/{run.name}", "is": "the same"} for run in runs]
    said = call("dev", "reproduction")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "docs/reproduction.md: 2 runs compared with the paper",
        "Figure: docs/images/reproduction-cifar10.png",
    ]
    page = (here / "docs/reproduction.md").read_bytes()
    assert b"| CLIB | `clib` | 2 | 70.26" in page
    assert (here / "docs/images/reproduction-cifar10.png").is_file()
    call("dev", "reproduction", "results")
    assert (here / "docs/reproduction.md").read_bytes() == page


def test_show_reads_what_was_collected(runs, call, monkeypatch):
    monkeypatch.setattr("iblurry.studies.collect.LARGEST", 100)
    call("dev", "collect")
    about, copies = (json.loads(call("show", place, "--json").out) for place in ("runs", "results/cifar10"))
    assert copies["table"] == about["table"]
    assert [run["finished"] for run in copies["runs"]] == [True, True]


def test_notes_and_json(runs, call, here):
    call("dev", "collect", "--out", "kept")
    (here / "page-notes.md").write_text("Beside the page.")
    (here / "other.md").write_text("Named.")
    said = call("dev", "reproduction", "kept", "--out", "page.md", "--json")
    about = json.loads(said.out)
    assert (about["page"], about["figures"]) == ("page.md", ["images/page-cifar10.png"])
    (row,) = [row for row in about["rows"] if row["row"] == "clib" and row["metric"] == "A_AUC"]
    assert row["difference"] == pytest.approx(row["ours"]["mean"] - 70.26)
    assert row["configuration"]["memory"] == 500
    assert "Beside the page." in (here / "page.md").read_text()
    call("dev", "reproduction", "kept", "--out", "page.md", "--notes", "other.md")
    assert "Named." in (here / "page.md").read_text()
    assert "Beside the page." not in (here / "page.md").read_text()


def test_repeats_are_found(runs, call, here):
    call("dev", "collect")
    call("dev", "reproduction")
    assert "noise" not in (here / "docs/reproduction.md").read_text()
    call("dev", "collect", "--out", "results/noise")
    assert call("dev", "reproduction").out.startswith("docs/reproduction.md: 2 runs compared with the paper")
    line = "| no recorded setting | `clib` | 2 | 0.00 (0.00) | 0.00 (0.00) | 0.00 (0.00) |"
    assert line in (here / "docs/reproduction.md").read_text().splitlines()


def test_unfinished_runs_are_left_out_aloud(runs, call):
    (runs[0] / "summary.json").unlink()
    said = call("dev", "collect")
    assert said.code == 0
    assert said.err == f"runs/{runs[0].name} is not finished and is skipped.\n"
    assert said.out == f"results/cifar10/{runs[1].name}: new\n"


def test_refusals(runs, refused, here):
    for run in runs:
        (run / "summary.json").rename(run / "no.json")
    (here / "empty").mkdir()
    (here / "file").touch()
    assert "empty is not a run" in refused("dev", "collect", "empty")
    assert "'--out'" in refused("dev", "collect", "--out", "file/deep")
    assert "There is no folder results" in refused("dev", "reproduction")
    assert "end its name in .md" in refused("dev", "reproduction", "empty", "--out", "page.html")
    assert "nowhere.md" in refused("dev", "reproduction", "empty", "--notes", "nowhere.md")


def test_none_is_finished(runs, call, here):
    for run in runs:
        (run / "summary.json").unlink()
    said = call("dev", "collect")
    assert (said.code, said.out) == (2, "")
    assert said.err.endswith("iblurry: None of these runs is finished; finish them with `iblurry run` first.\n")
    assert not (here / "results").exists()
