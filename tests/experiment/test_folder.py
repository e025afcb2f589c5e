"""Whose a run's folder is: one experiment's, one version's, and one process's at a time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from iblurry.errors import DataError, FolderError
from iblurry.experiment import folder as folder_module
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.result import read_result
from iblurry.launch.launch import run
from tests.experiment.small import At, CrashError, crash, small

HOLD = """
import fcntl, sys, time
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("mine", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def unfinished(tmp_path):
    with pytest.raises(CrashError):
        run(small(), tmp_path, callback=At(20, crash))
    return RunFolder(tmp_path / small().name)


@pytest.fixture
def finished(tmp_path):
    return RunFolder(run(small(samples=10), tmp_path).folder)


def alter(folder, **changes):
    path = folder.path / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.path.iterdir()}


def refused(experiment, folder, match):
    """The run is refused and nothing in the folder is changed."""
    before = contents(folder)
    with pytest.raises(FolderError, match=match):
        run(experiment, folder.path.parent)
    assert contents(folder) == before


def test_what_is_written_says_whose_it_is(unfinished):
    about = json.loads((unfinished.path / "experiment.json").read_text())
    assert about["experiment"] == json.loads(json.dumps(small().to_json()))
    assert (about["format"], about["digest"]) == (2, small().digest)
    assert unfinished.experiment() == small()


def test_another_experiment(unfinished):
    alter(unfinished, experiment=small(memory=30).to_json())
    refused(small(), unfinished, r"belongs to another experiment.*Choose another --out, or delete that folder")
    alter(unfinished, experiment=small().to_json(), digest="0" * 12)
    refused(small(), unfinished, r"belongs to another experiment \(000000000000\)")
    alter(unfinished, digest=small().digest)
    assert run(small(), unfinished.path.parent).summary is not None  # put right, it goes on


def test_another_format(unfinished, finished):
    for experiment, folder in ((small(), unfinished), (small(samples=10), finished)):
        alter(folder, format=3)
        refused(experiment, folder, "format 3")
    with pytest.raises(FolderError, match="format 3"):
        read_result(finished)


def test_another_version_is_not_continued_but_read(unfinished, finished):
    alter(unfinished, version="0.0.1")
    refused(small(), unfinished, "0.0.1")
    alter(finished, version="0.0.1")
    before = contents(finished)
    assert run(small(samples=10), finished.path.parent).summary == finished.summary()
    assert contents(finished) == before


def test_a_journal_nobody_signed(unfinished):
    signed = (unfinished.path / "experiment.json").rename(unfinished.path.parent / "signed.json")
    refused(small(), unfinished, r"has a journal but no experiment\.json")
    signed.rename(unfinished.path / "experiment.json")
    assert run(small(), unfinished.path.parent).summary is not None  # put back, it goes on


@pytest.mark.parametrize("name", ["experiment.json", "environment.json", "summary.json"])
def test_a_damaged_file(name, finished):
    if name == "environment.json":
        (finished.path / "summary.json").unlink()
    (finished.path / name).write_bytes((finished.path / name).read_bytes()[:-20])
    before = contents(finished)
    with pytest.raises(DataError, match=name):
        run(small(samples=10), finished.path.parent)
    assert contents(finished) == before


def test_no_run_at_all(tmp_path):
    with pytest.raises(FolderError, match=r"experiment\.json"):
        read_result(RunFolder(tmp_path))


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(FolderError, match="Not a directory"):
        run(small(), tmp_path / "file")


def test_two_processes(unfinished, monkeypatch):
    monkeypatch.setattr(folder_module, "LOCK_TIMEOUT", 0.2)
    command = [sys.executable, "-c", HOLD, str(unfinished.path / "lock")]
    with subprocess.Popen([*command, "600"], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"mine\n"
        refused(small(), unfinished, "Another process")
        other.kill()  # which frees the lock
    monkeypatch.undo()
    with subprocess.Popen([*command, "0.5"], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"mine\n"
        assert run(small(), unfinished.path.parent).summary is not None  # who waits a moment gets in
        assert other.wait() == 0
