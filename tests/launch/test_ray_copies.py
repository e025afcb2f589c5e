"""Copies of run folders on another machine: when they are removed, and when the folders at home are free again.

Ray is replaced by calls in this process, so that the tests need no cluster.
"""

from __future__ import annotations

import fcntl
import tempfile
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from iblurry.errors import DiskFullError, DivergedError, StoppedError
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.folder import RunFolder
from iblurry.launch import ray as module
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run_all
from iblurry.launch.ray import TEMPORARY, CopyingClient, RayWorkers
from tests.experiment.small import checkpoints, kept, small
from tests.launch.test_sweep import EXPLODING

SAVE = CheckpointPolicy(samples=2)
TWO = [small("er"), small("er", seed=2)]


class RayHereError(Exception):
    """What Ray raises for an error in an actor."""


class Actor:
    """An object whose methods have `.remote`, each called when its answer is wanted."""

    def __init__(self, target):
        self.target = target

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *given: lambda: getattr(self.target, name)(*given))


class RayHere:
    """As much of Ray as RayWorkers uses."""

    exceptions = SimpleNamespace(RayError=RayHereError)

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 2}

    def remote(self, kind):
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *given: Actor(kind(*given))))

    def wait(self, calls, **_):
        return calls, []

    def get(self, call):
        try:
            return call()
        except Exception as error:
            raise RayHereError from error

    def kill(self, actor):
        actor.target.ask_to_stop()


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(module, "_import_ray", RayHere)
    monkeypatch.setattr(RayWorkers, "_marked_folder", lambda self: nullcontext())
    monkeypatch.setattr(RayWorkers, "ask_to_stop", lambda self: [a.target.ask_to_stop() for a in self.workers.values()])


def launched(experiments, out, failures=None):
    return run_all(experiments, LaunchConfig(out=out, jobs=2, on="ray", checkpoints=SAVE), failures=failures)


def left(tmp_path):
    """Our temporary folders that are still there."""
    return list((tmp_path / "tmp").glob("iblurry*"))


def is_free(folder):
    with (folder / "lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.slow
def test_copies_are_removed_when_runs_have_ended(tmp_path):
    failures = {}
    finished, failed = launched([TWO[0], EXPLODING], tmp_path / "home", failures)
    run_all(TWO[:1], LaunchConfig(out=tmp_path / "alone", jobs=1))
    assert kept(finished.folder) == kept(tmp_path / "alone" / TWO[0].name)
    assert isinstance(failures[EXPLODING.name], DivergedError)
    assert is_free(finished.folder)
    assert is_free(failed.folder)
    assert left(tmp_path) == []


@pytest.mark.slow
def test_what_killed_workers_left_is_removed(tmp_path):
    killed, working = tmp_path / "tmp" / f"{TEMPORARY}killed", tmp_path / "tmp" / f"{TEMPORARY}working"
    for folder in (killed, working):
        (folder / "run").mkdir(parents=True)
    with (working / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        launched(TWO[:1], tmp_path / "home")
        assert left(tmp_path) == [working]


@pytest.mark.slow
def test_a_full_disk_at_home_lets_the_others_come_home_before_their_folders_are_free(tmp_path, monkeypatch):
    freed, write, unlock = [], module.write_files, RayWorkers._unlock

    def write_files(folder, files, removed=None):
        if folder == tmp_path / "home" / TWO[0].name:
            raise DiskFullError(str(folder))
        write(folder, files, removed)

    def watched(self, job):
        freed.append((job, bool(checkpoints(self._folder(job)))))
        unlock(self, job)

    monkeypatch.setattr(module, "write_files", write_files)
    monkeypatch.setattr(RayWorkers, "_unlock", watched)
    with pytest.raises(DiskFullError, match=TWO[0].name):
        launched(TWO, tmp_path / "home")
    assert (1, True) in freed  # its last checkpoint was home before it was free
    assert (1, False) not in freed
    assert not checkpoints(tmp_path / "home" / TWO[0].name)
    assert all(is_free(tmp_path / "home" / one.name) for one in TWO)
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_mistake_in_a_worker_is_a_lost_worker(tmp_path, monkeypatch):
    def mistaken(self, job, *, always):
        raise RuntimeError

    monkeypatch.setattr(CopyingClient, "_send_files", mistaken)
    failures = {}
    (result,) = launched(TWO[:1], tmp_path / "home", failures)
    assert isinstance(failures[TWO[0].name], StoppedError)
    assert RunFolder(result.folder).summary() is None
    assert is_free(result.folder)
    assert left(tmp_path) == []
