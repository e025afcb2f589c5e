"""`iblurry report`: from runs to one file."""

from __future__ import annotations

import json

import pytest

from tests.studies.written import usual, write_run


@pytest.fixture
def runs(here):
    for seed in (1, 2):
        write_run(here / "runs", usual("clib", seed), 71)
    return here / "runs"


def test_from_runs_to_the_page(runs, call, here):
    said = call("report")
    assert (said.code, said.err) == (0, "")
    written = (here / "report.html").read_bytes()
    assert said.out == f"report.html: 2 finished runs of 2, {len(written) / 1000:,.0f} kB\n"
    assert written.startswith(b"<!doctype html>")
    about = json.loads(call("report", runs, "--out", "a/b.html", "--json").out)
    other = (here / "a/b.html").read_bytes()
    assert about == {"page": "a/b.html", "bytes": len(other), "runs": 2, "finished": 2}
    assert other.replace(b'href="../runs', b'href="runs') == written  # links lead to the runs from where it lies


def test_collected_runs_and_a_title(runs, call, here):
    call("dev", "collect")
    call("report", "results", "--title", "Ours & <theirs>", "--study", "main")
    text = (here / "report.html").read_text()
    assert "<h1>Ours &amp; &lt;theirs&gt;</h1>" in text
    assert "Missing from the study" in text


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["nowhere"], "nowhere"),
        (["empty"], "empty"),
        (["runs", "--out", "page.md"], "'--out': page.md"),
        (["runs", "--out", "empty.html"], "empty.html"),
        (["runs", "--study", "mian"], "'main'"),
    ],
)
def test_refused(runs, refused, here, arguments, sentence):
    (here / "empty").mkdir()
    (here / "empty.html").mkdir()
    assert sentence in refused("report", *arguments)
