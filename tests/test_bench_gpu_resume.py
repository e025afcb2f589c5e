"""Runs that are stopped and killed beside undisturbed runs, as on a GPU but tiny and on the CPU."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks.gpu import resume
from iblurry.errors import InputError
from iblurry.experiment import run_loop as running

ON_THE_CPU = ["--device", "cpu", "--precision", "float32", "--network", "mlp"]
SMALL = ["--dataset", "shapes:classes=10,train=12,test=6,size=8,channels=3", "--samples", "60", "--query-every", "20"]
RESUME = [*ON_THE_CPU, *SMALL, "--memory", "32", "--epochs", "2", "--save-samples", "7", "--threads", "1"]


class Ended(Exception):  # noqa: N818
    """Instead of a process's end."""


@pytest.fixture
def _in_this_process(monkeypatch):
    """Attempts without the seconds a process takes to start; what `os._exit` ends is unwound instead."""

    def end(code):
        raise Ended

    def attempt(command, **options):
        try:
            code = resume.main(command[3:])
        except Ended:
            code = resume.KILLED
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(running, "PROGRESS_EVERY", running.PROGRESS_EVERY)  # put back afterwards
    monkeypatch.setattr(resume.os, "_exit", end)
    monkeypatch.setattr(resume, "subprocess", SimpleNamespace(run=attempt))  # git is asked for the commit as ever


@pytest.mark.quick("gdumb")
@pytest.mark.usefixtures("_in_this_process")
@pytest.mark.parametrize("method", ["er", "gdumb"])
def test_resumed_as_undisturbed(method, tmp_path, capsys):
    words = [method, *RESUME, "--stops", "2", "--out", str(tmp_path)]
    assert resume.main(words) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["same"] == {"journal": True, "checkpoint": True}
    assert sorted(stop.split()[0] for stop in row["stops"]) == ["kill", "stop", "stop"]
    with pytest.raises(InputError, match="choose another --out"):
        resume.main(words)


@pytest.mark.usefixtures("_in_this_process")
def test_resumed_otherwise_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(resume, "run_outputs", lambda folder: {"journal": str(folder).encode()})
    assert resume.main(["er", *RESUME, "--samples", "20", "--stops", "0", "--kills", "0", "--out", str(tmp_path)]) == 1
    assert json.loads(capsys.readouterr().out)["equal"] is False


@pytest.mark.slow
def test_an_attempt_is_really_killed(tmp_path):
    resume._run_attempt("er", resume.parser().parse_args(["er", *RESUME]), tmp_path, "kill", 25)
    (folder,) = tmp_path.iterdir()
    assert [int(path.stem[-3:]) for path in sorted(folder.glob("checkpoint-*"))] == [14, 21]
    assert not (folder / "summary.json").exists()
