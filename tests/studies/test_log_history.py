"""From a run's folder to what a logger is given: finished, under way, packed, damaged."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys

import pytest

from iblurry.errors import DataError, FolderError, InputError
from iblurry.experiment.journal import Held, Logged, Start, Stopped, encode
from iblurry.studies.loggers.history import log_events, read_history
from iblurry.studies.loggers.logger import log_run
from tests.studies.told import (
    ENVIRONMENT,
    EVENTS,
    FINISHED,
    LINES,
    PARAMETERS,
    RECORDS,
    SUMMARY,
    Recorder,
    begin,
    finish,
    history,
    write,
)


@pytest.fixture
def folder(tmp_path):
    return begin(tmp_path / "mine-pets-1", LINES)


def test_a_finished_run(folder):
    finish(folder)
    run = read_history(folder)
    assert (run.events, run.summary) == (FINISHED, SUMMARY)
    assert (run.name, run.folder) == ("mine-pets-1", folder)
    assert (run.parameters, run.environment) == (PARAMETERS, ENVIRONMENT)


def test_the_name_of_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert read_history(".").name == "mine-pets-1"


def test_a_run_under_way_is_read_without_a_line_that_is_still_written(folder):
    whole = b"".join(LINES)
    for size in [*range(0, len(whole), 13), len(whole)]:
        write(folder, [whole[:size]])
        lines, run = whole[:size].count(b"\n"), read_history(folder)
        if lines == 0:
            assert run is None
        else:
            assert (run.events, run.summary) == (log_events(RECORDS[:lines], None), None)
    assert run.events == EVENTS


def test_what_callbacks_logged():
    records = [Logged(25, "mine", 0.5), Held(25, (3, 1)), Held(27, (3, 1)), Stopped(30, "far enough")]
    assert log_events(records, None) == [(25, {"own/mine": 0.5}), (30, {"stopped": "far enough"})]
    step, values = log_events(records, SUMMARY | {"samples": 20, "stopped": {"at": 30}})[-1]
    assert (step, values["stopped"], values["final/A_AUC"]) == (30, "far enough", 0.5)


def test_a_run_that_has_not_begun(tmp_path):
    folder = begin(tmp_path / "mine-pets-1")
    assert read_history(folder) is None
    write(folder, LINES[:1])
    assert read_history(folder).events == []


def test_a_packed_journal(folder):
    (folder / "journal.jsonl").unlink()
    (folder / "journal.jsonl.gz").write_bytes(gzip.compress(b"".join(LINES)))
    finish(folder)
    assert read_history(folder).events == FINISHED
    (folder / "journal.jsonl.gz").write_bytes(gzip.compress(b"".join(LINES))[:-9])
    with pytest.raises(DataError, match=r"journal\.jsonl\.gz"):
        read_history(folder)


@pytest.mark.parametrize(
    "lines, number, why",
    [
        ([*LINES[:3], b"{}\n"], 4, "no kind None"),
        ([*LINES[:3], b"noise\n", *LINES[3:]], 4, "Expecting value"),
        (LINES[1:], 1, "one start, on its first line"),
        ([*LINES[:2], encode(Start("0", 40, (40,), 10))], 3, "one start, on its first line"),
    ],
)
def test_a_damaged_journal(folder, lines, number, why):
    write(folder, lines)
    with pytest.raises(DataError, match=rf"journal\.jsonl, line {number} .*{why}"):
        read_history(folder)


def test_a_torn_line_is_damage_in_a_finished_run(folder):
    finish(folder)
    write(folder, [*LINES, b'{"kind":"que'])
    with pytest.raises(DataError, match=r"journal\.jsonl, line 11"):
        read_history(folder)


def test_a_damaged_experiment(folder):
    path = folder / "experiment.json"
    path.write_text('{"format": 2, "experiment": {}}')
    with pytest.raises(DataError, match=r"experiment\.json"):
        read_history(folder)
    path.unlink()
    with pytest.raises(FolderError, match="mine-pets-1"):
        read_history(folder)


def test_nothing_is_written_there(folder):
    finish(folder)
    for path in (*folder.iterdir(), folder):
        os.utime(path, (1, 1))
    read_history(folder)
    assert {path.stat().st_mtime for path in (*folder.iterdir(), folder)} == {1.0}


def test_it_needs_no_torch(folder):
    finish(folder)
    code = (
        "import sys\n"
        "from iblurry.studies.loggers.history import read_history\n"
        "import iblurry.studies.loggers.logger\n"
        "print(len(read_history(sys.argv[1]).events))\n"
        "print([name for name in ('torch', 'tensorboard', 'wandb', 'mlflow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(len(FINISHED)), "[]"]


def test_what_the_library_refuses_is_one_sentence(monkeypatch):
    def refuse(*_):
        raise KeyError("no such server.")

    monkeypatch.setattr(Recorder, "write", refuse)
    with pytest.raises(InputError, match=r"mine-pets-1: .*no such server"):
        log_run(history(EVENTS), Recorder())
