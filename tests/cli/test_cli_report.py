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
    assert about == {"page": "a/b.html", "bytes": len(written), "runs": 2, "finished": 2}
    assert (here / "a/b.html").read_bytes() == written


def test_collected_runs_and_a_title(runs, call, here):
    call("collect")
    call("report", "results", "--title", "Ours & <theirs>", "--study", "main")
    text = (here / "report.html").read_text()
    assert "<h1>Ours &amp; &lt;theirs&gt;</h1>" in text
    assert "Missing from the study" in text


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["nowhere"], "There is no folder nowhere; name one that"),
        (["empty"], "empty holds no runs, only nothing at all; name the folder that"),
        (["runs", "--out", "page.md"], "--out page.md: the page is HTML; end its name in .html."),
        (["runs", "--out", "empty.html"], "--out empty.html is a folder; give the name of a file."),
        (["runs", "--study", "mian"], "There is no study called 'mian'. Did you mean 'main'?"),
    ],
)
def test_refused(runs, refused, here, arguments, sentence):
    (here / "empty").mkdir()
    (here / "empty.html").mkdir()
    assert sentence in refused("report", *arguments)


def test_parts_of_ones_own_need_their_module(own, runs, apart, refused, here):
    write = "run clib-oldest --import mine.py --samples 40 --seeds 1 --jobs 1 --tasks 2 --memory 20 --query-every 10"
    stream = " --dataset shapes:classes=4,train=20,test=10,size=8,channels=1 --network mlp --out own"
    done = apart(write + stream, "report own --import mine.py")
    assert [said.code for said in done] == [0, 0], done
    assert "clib-oldest" in (here / "report.html").read_text()
    assert "Parts of your own are known after --import MODULE." in refused("report", "own")
