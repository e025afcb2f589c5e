"""`iblurry log`: which runs, where to, how often; the libraries themselves are tried elsewhere."""

from __future__ import annotations

import json
import os
import signal
from types import SimpleNamespace

import pytest

from iblurry.cli import log as module
from tests.studies.told import FINAL, LINES, SCALARS, SUMMARY, TEXTS, Recorder, begin, finish, write

EVENTS = len(SCALARS) + len(TEXTS) + 1


@pytest.fixture
def made(monkeypatch):
    """Writers that only remember, in the order they were made, and what was asked for."""
    writers = []

    def maker(name, *, out, project):
        writers.clear()
        maker.asked = (name, out, project)
        return lambda: writers.append(Recorder()) or writers[-1]

    monkeypatch.setattr("iblurry.studies.loggers.logger.make_logger_factory", maker)
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "GRACE", 0.0)
    return SimpleNamespace(writers=writers, maker=maker)


@pytest.fixture
def runs(here):
    """Two that are finished and one that is under way."""
    for name in ("a", "b"):
        finish(begin(here / "runs" / name, LINES))
    begin(here / "runs" / "c", LINES[:5])
    return here / "runs"


def test_runs_and_folders_of_runs(runs, call, made):
    said = call("log", "--to", "tensorboard")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        f"runs/a: {EVENTS} events, finished, in kept/a",
        f"runs/b: {EVENTS} events, finished, in kept/b",
        "runs/c: 6 events, not finished, in kept/c",
    ]
    assert [writer.ended for writer in made.writers] == [[SUMMARY], [SUMMARY], [None]]
    assert made.writers[0].scalar == [*SCALARS, FINAL]
    assert made.writers[2].scalar == SCALARS[:4]
    assert call("log", "runs/b", "runs/b", "--to", "tensorboard").out.count("\n") == 1
    assert [writer.run.name for writer in made.writers] == ["b"]


def test_json(runs, call, made):
    said = call("log", "runs/c", "runs/a", "--to", "mlflow", "--out", "x", "--project", "pets", "--json")
    assert json.loads(said.out) == [
        {"folder": "runs/c", "place": "kept/c", "finished": False, "events": 6},
        {"folder": "runs/a", "place": "kept/a", "finished": True, "events": EVENTS},
    ]
    assert (made.maker.asked[0], str(made.maker.asked[1]), made.maker.asked[2]) == ("mlflow", "x", "pets")


def test_a_run_that_has_not_begun_is_left_out_aloud(runs, call, made):
    begin(runs / "d")
    said = call("log", "--to", "tensorboard")
    assert said.err == "runs/d has not begun yet and is left out.\n"
    assert said.out.count("\n") == 3


def test_nothing_of_the_run_changes(runs, call, made):
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in runs.rglob("*") if path.is_file()}
    assert call("log", "--to", "wandb").code == 0
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in runs.rglob("*") if path.is_file()} == before


def test_following_runs_to_their_end(runs, call, made, monkeypatch):
    """One grows, is cut back as by a resume, and ends; one begins meanwhile."""
    stages = iter(
        [
            lambda: write(runs / "c", [*LINES[:6], LINES[6][:9]]),
            lambda: write(runs / "c", LINES[:4]),
            lambda: begin(runs / "d", LINES[:2]),
            lambda: (write(runs / "c", LINES), finish(runs / "c")),
            lambda: (write(runs / "d", LINES), finish(runs / "d")),
        ]
    )
    monkeypatch.setattr("time.sleep", lambda _: next(stages)())
    said = call("log", "--to", "tensorboard", "--follow")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [f"runs/{name}: {EVENTS} events, finished, in kept/{name}" for name in "abcd"]
    for writer in made.writers:
        assert (writer.started, writer.ended) == (1, [SUMMARY])
        assert writer.scalar == [*SCALARS, FINAL]
    assert next(stages, None) is None


def test_following_what_is_finished_ends_at_once(runs, call, made, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("nothing to wait for"))
    assert call("log", "runs/a", "runs/b", "--to", "tensorboard", "--follow").code == 0


def test_the_next_run_has_a_moment_to_begin(runs, call, made, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 1000.0)
    clock, slept = iter(range(0, 10000, 400)), []
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("time.sleep", lambda _: slept.append(finish(runs / "c")))
    assert call("log", "--to", "tensorboard", "--follow").code == 0
    assert len(slept) == 3  # under way, 400 and 800 after it


def test_ctrl_c_ends_the_following(runs, call, made, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        said = call("log", "--to", "tensorboard", "--follow")
    finally:
        signal.signal(signal.SIGINT, before)
    assert said.code == 130
    assert "iblurry: Interrupted; what was saved is kept" in said.err
    assert "runs/c: 6 events, not finished, in kept/c" in said.out.splitlines()
    assert [writer.ended for writer in made.writers] == [[SUMMARY], [SUMMARY], [None]]


def test_two_runs_of_one_name_are_refused(runs, refused, here):
    finish(begin(here / "more" / "a", LINES))
    sentence = refused("log", "runs", "more", "--to", "tensorboard")
    assert "runs/a and more/a have the same name and would be written into one; name one of them." in sentence


@pytest.mark.parametrize(
    "words, sentence",
    [
        ([], "'--to'"),
        (["--to", "tensorbord"], "'tensorboard'"),
        (["nowhere", "--to", "tensorboard"], "nowhere"),
        (["--to", "tensorboard", "--out", "runs/a/summary.json"], "summary.json"),
        (["--to", "tensorboard", "--project", "x"], "--project x"),
    ],
)
def test_refusals(runs, refused, words, sentence):
    assert sentence in refused("log", *words)


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_an_extra_that_is_not_installed(runs, refused, name, monkeypatch):
    monkeypatch.setattr("iblurry.studies.loggers.logger.find_spec", lambda _: None)
    assert f"which is not installed; pip install 'iblurry[{name}]'." in refused("log", "--to", name)


def test_a_damaged_journal_is_refused_in_a_sentence(runs, call, made):
    write(runs / "b", [*LINES[:3], b"noise\n"])
    said = call("log", "--to", "tensorboard")
    assert (said.code, said.out) == (2, "")
    assert "runs/b/journal.jsonl, line 4 is damaged" in said.err
    assert made.writers[0].ended == [SUMMARY]
