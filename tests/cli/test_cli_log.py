"""`iblurry show --to`: which runs, and where to; the libraries themselves are tried elsewhere."""

from __future__ import annotations

import json

import pytest

from tests.experiment.told import FINISHED, LINES, Recorder, begin, finish, write


@pytest.fixture
def made(monkeypatch):
    """A logger that only remembers, and what was asked for."""
    asked = []

    def make(**given):
        asked.append(given)
        Recorder.runs.clear()
        return Recorder()

    for name in ("TensorBoard", "WandB", "MLflow"):
        monkeypatch.setattr(f"iblurry.experiment.callbacks.{name}", make)
    return asked


@pytest.fixture
def runs(here):
    """Two that are finished and one that is under way."""
    for name in ("a", "b"):
        finish(begin(here / "runs" / name, LINES))
    begin(here / "runs" / "c", LINES[:5])
    return here / "runs"


def test_runs_and_folders_of_runs(runs, call, made):
    said = call("show", "--to", "tensorboard")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "runs/a: finished, in kept/a",
        "runs/b: finished, in kept/b",
        "runs/c: not finished, in kept/c",
    ]
    assert [Recorder.runs[name] for name in "ab"] == [FINISHED, FINISHED]
    assert [Recorder.closed[name] for name in "abc"] == [True, True, False]
    assert call("show", "runs/b", "runs/b", "--to", "tensorboard").out.count("\n") == 1
    assert list(Recorder.runs) == ["b"]


def test_json(runs, call, made):
    said = call("show", "runs/c", "runs/a", "--to", "mlflow", "--out", "x", "--project", "pets", "--json")
    assert json.loads(said.out) == [
        {"folder": "runs/c", "place": "kept/c", "finished": False},
        {"folder": "runs/a", "place": "kept/a", "finished": True},
    ]
    assert made == [{"out": "x", "project": "pets"}]


def test_a_run_that_has_not_begun_is_left_out_aloud(runs, call, made):
    begin(runs / "d")
    said = call("show", "--to", "tensorboard")
    assert said.err == "runs/d has not started yet and is skipped.\n"
    assert said.out.count("\n") == 3


def test_nothing_of_the_run_changes(runs, call, made):
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in runs.rglob("*") if path.is_file()}
    assert call("show", "--to", "wandb").code == 0
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in runs.rglob("*") if path.is_file()} == before


def test_two_runs_of_one_name_are_refused(runs, refused, here):
    finish(begin(here / "more" / "a", LINES))
    assert "runs/a and more/a" in refused("show", "runs", "more", "--to", "tensorboard")


@pytest.mark.parametrize(
    "words, named",
    [
        (["--out", "logs"], "--out logs"),
        (["--project", "pets"], "--project pets"),
        (["--to", "wandb", "--metric", "a_auc"], "--to wandb"),
        (["--to", "tensorbord"], "'tensorboard'"),
        (["nowhere", "--to", "tensorboard"], "nowhere"),
        (["--to", "tensorboard", "--out", "runs/a/summary.json"], "summary.json"),
        (["--to", "tensorboard", "--project", "x"], "--project x"),
    ],
)
def test_refusals(runs, refused, words, named):
    assert named in refused("show", *words)


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_an_extra_that_is_not_installed(runs, refused, name, monkeypatch):
    monkeypatch.setattr("iblurry.experiment.callbacks.find_spec", lambda _: None)
    assert f"iblurry[{name}]" in refused("show", "--to", name)


def test_a_damaged_journal_is_refused_in_a_sentence(runs, call, made):
    write(runs / "b", [*LINES[:3], b"noise\n"])
    said = call("show", "--to", "tensorboard")
    assert (said.code, said.out.count("\n")) == (2, 1)
    assert "runs/b/journal.jsonl, line 4 is damaged" in said.err
    assert list(Recorder.runs) == ["a"]
