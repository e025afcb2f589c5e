"""Replay: from a run's folder to what a callback is told; and the same of a run while it runs."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from iblurry import Callback, CheckpointPolicy, replay, run
from iblurry.errors import DataError, InputError
from iblurry.experiment.journal import Held, Logged, Stopped, encode
from tests.experiment.small import At, CrashError, crash, kept, small
from tests.experiment.told import EVENTS, FINISHED, LINES, Recorder, begin, finish, write
from tests.experiment.user_callbacks import StopAt

NAME = "mine-pets-1"


@pytest.fixture
def folder(tmp_path):
    return begin(tmp_path / NAME, LINES)


def rows(folder):
    replay(folder, Recorder())
    return Recorder.runs[folder.name]


def test_a_finished_run(folder):
    finish(folder)
    assert rows(folder) == FINISHED
    assert Recorder.closed[NAME]


@pytest.mark.parametrize("size", [*range(0, sum(map(len, LINES)), 50), sum(map(len, LINES))])
def test_a_run_under_way_is_read_without_a_torn_line_and_without_a_row_that_may_grow(folder, size):
    whole = b"".join(LINES)
    write(folder, [whole[:size]])
    lines = whole[:size].count(b"\n")
    steps = sorted({record["at"] for record in map(json.loads, LINES[1:lines])})
    Recorder.runs.clear()
    Recorder.closed.clear()
    assert bool(replay(folder, Recorder()).journal) == (lines > 0)
    assert Recorder.runs.get(NAME, []) == EVENTS[: max(0, len(steps) - 1)]
    assert NAME not in Recorder.closed


def test_what_callbacks_logged(folder):
    more = [Logged(45, "mine", 0.5), Held(45, (3, 1, 1)), Held(47, (3, 1, 1)), Stopped(50, "far enough")]
    write(folder, [*LINES, *map(encode, more)])
    finish(folder)
    *_, one, last = rows(folder)
    assert one == (45, {"own/mine": 0.5})
    assert (last[0], last[1]["stopped"], last[1]["final/A_AUC"]) == (50, "far enough", 0.5)


def test_other_callbacks_are_told_too_and_change_nothing(folder):
    class Told(Callback):
        def __init__(self):
            self.said = []

        def on_run_start(self, name, position, samples):
            self.said.append((name, position, samples))

        def on_progress(self, position, accuracy, lr):
            self.said.append((position, accuracy, lr))

        def on_run_end(self):
            self.said.append("end")

    class Logs(Callback):
        def on_query(self, run, answer):
            run.log("mine", run.metrics.a_auc)

    class Stops(Callback):
        def on_new_class(self, run, label):
            run.stop(f"{label} at {run.position} of {run.samples}")

    finish(folder)
    told = Told()
    replay(folder, told)
    assert told.said == [(NAME, 0, 40), (10, 0.5, 0.1), (20, 0.75, 0.05), (30, 0.5, 0.1), (40, 0.25, 0.1), "end"]
    for one, word in ((Logs(), "mine"), (Stops(), "cat at 1 of 40")):
        with pytest.raises(InputError, match=word):
            replay(folder, one)


def test_a_packed_journal(folder):
    (folder / "journal.jsonl").unlink()
    (folder / "journal.jsonl.gz").write_bytes(gzip.compress(b"".join(LINES)))
    finish(folder)
    assert rows(folder) == FINISHED
    (folder / "journal.jsonl.gz").write_bytes(gzip.compress(b"".join(LINES))[:-9])
    with pytest.raises(DataError, match=r"journal\.jsonl\.gz"):
        rows(folder)


def test_a_torn_line_is_damage_in_a_finished_run(folder):
    finish(folder)
    write(folder, [*LINES, b'{"kind":"que'])
    with pytest.raises(DataError, match=r"journal\.jsonl, line 11"):
        rows(folder)


def test_neither_that_nor_reading_results_needs_torch(folder):
    finish(folder)
    heavy = ("torch", "matplotlib", "rich", "PIL", "tensorboard", "wandb", "mlflow")
    code = (
        "import sys\n"
        "import iblurry.experiment.metrics\n"
        "from iblurry import TensorBoard, replay\n"
        "from iblurry.experiment.callback import Callback\n"
        "print(len(replay(sys.argv[1], Callback()).records))\n"
        f"print([name for name in {heavy} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(len(LINES)), "[]"]


@pytest.mark.parametrize("name", ["er", "gdumb", "joint"])
def test_a_run_is_logged_while_it_runs_as_it_is_afterwards(name, tmp_path):
    """A logger may come or go when a run continues, leaves no trace, and starts from the beginning each time."""
    experiment, often = small(name), CheckpointPolicy(samples=3)
    plain = run(experiment, tmp_path / "plain")
    with pytest.raises(CrashError):
        run(experiment, tmp_path / "runs", callback=At(30, crash), checkpoints=often)
    with pytest.raises(CrashError):
        run(experiment, tmp_path / "runs", callback=[Recorder(), At(60, crash)], checkpoints=often)
    result = run(experiment, tmp_path / "runs", callback=Recorder(), checkpoints=often)
    assert kept(result.folder)[0] == kept(plain.folder)[0]
    assert "callbacks" not in result.environment
    live = Recorder.runs[result.folder.name]
    again = rows(result.folder)
    for row in (live[-1][1], again[-1][1]):
        assert row.pop("final/seconds") > 0
        assert row.pop("final/samples_per_second") > 0
    assert live == again


def test_a_run_that_was_stopped_says_why(tmp_path):
    result = run(small("er"), tmp_path, callback=[StopAt(sample=40), Recorder()])
    assert Recorder.runs[result.folder.name][-1][1]["stopped"] == result.stopped.reason
    ((stored,),) = result.environment["callbacks"]
    assert stored.startswith("StopAt")


def test_what_the_library_refuses_is_one_sentence(folder, monkeypatch):
    def refuse(*_):
        raise KeyError("no such server.")

    monkeypatch.setattr(Recorder, "write", refuse)
    with pytest.raises(InputError, match=rf"{NAME}: .*no such server"):
        rows(folder)
