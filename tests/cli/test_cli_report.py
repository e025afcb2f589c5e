"""`iblurry report`, `dev collect` and `dev reproduction`: from runs to the pages."""

from __future__ import annotations

import json

import pytest

from tests.studies.written import usual, write_run


@pytest.fixture
def runs(here):
    for seed in (1, 2):
        write_run(here / "runs", usual("clib", seed), 71)
    return sorted((here / "runs").iterdir())


def test_report(runs, call, here):
    said = call("report")
    assert (said.code, said.err) == (0, "")
    written = (here / "report.html").read_bytes()
    assert said.out.startswith("report.html: 2 finished runs of 2, ")
    assert written.startswith(b"<!doctype html>")
    about = json.loads(call("report", "runs", "--out", "a/b.html", "--json").out)
    other = (here / "a/b.html").read_bytes()
    assert about == {"page": "a/b.html", "bytes": len(other), "runs": 2, "finished": 2}
    assert other.replace(b'href="../runs', b'href="runs') == written  # links lead to the runs from where it lies
    call("dev", "collect")
    call("report", "results", "--title", "Ours & <theirs>", "--study", "main")
    text = (here / "report.html").read_text()
    assert "<h1>Ours &amp; &lt;theirs&gt;</h1>" in text
    assert "Missing from the study" in text


def test_collect_and_reproduction(runs, call, here):
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
    assert b"noise" not in page
    assert (here / "docs/images/reproduction-cifar10.png").is_file()
    call("dev", "reproduction", "results")
    assert (here / "docs/reproduction.md").read_bytes() == page
    call("dev", "collect", "--out", "results/noise")  # repeats of them
    assert call("dev", "reproduction").out == said.out
    line = "| no recorded setting | `clib` | 2 | 0.00 (0.00) | 0.00 (0.00) | 0.00 (0.00) |"
    assert line in (here / "docs/reproduction.md").read_text().splitlines()


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
    about = json.loads(call("dev", "reproduction", "kept", "--out", "page.md", "--json").out)
    assert (about["page"], about["figures"]) == ("page.md", ["images/page-cifar10.png"])
    (row,) = [row for row in about["rows"] if row["row"] == "clib" and row["metric"] == "A_AUC"]
    assert row["difference"] == pytest.approx(row["ours"]["mean"] - 70.26)
    assert row["configuration"]["memory"] == 500
    assert "Beside the page." in (here / "page.md").read_text()
    call("dev", "reproduction", "kept", "--out", "page.md", "--notes", "other.md")
    assert "Named." in (here / "page.md").read_text()
    assert "Beside the page." not in (here / "page.md").read_text()


def test_unfinished_runs_are_left_out_aloud(runs, call, here):
    (runs[0] / "summary.json").unlink()
    said = call("dev", "collect")
    assert (said.code, said.out) == (0, f"results/cifar10/{runs[1].name}: new\n")
    assert said.err.startswith(f"runs/{runs[0].name} ")
    (runs[1] / "summary.json").unlink()
    said = call("dev", "collect", "--out", "none")
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 3)
    assert not (here / "none").exists()


@pytest.mark.parametrize(
    "words, named",
    [
        ("report nowhere", "nowhere"),
        ("report empty", "empty"),
        ("report --out page.md", "'--out': page.md"),
        ("report --out empty.html", "empty.html"),
        ("report --study mian", "'main'"),
        ("dev collect empty", "empty"),
        ("dev collect --out file/deep", "'--out'"),
        ("dev reproduction", "results"),
        ("dev reproduction empty --out page.html", ".md"),
        ("dev reproduction empty --notes nowhere.md", "nowhere.md"),
    ],
)
def test_refused(runs, refused, here, words, named):
    (here / "empty").mkdir()
    (here / "empty.html").mkdir()
    (here / "file").touch()
    assert named in refused(*words.split())
