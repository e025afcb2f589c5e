"""Runs on a Ray cluster: of this machine, with a worker killed in the middle, and on another machine with copies.

For the other machine Ray is replaced by calls in this process.
"""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from iblurry.errors import DiskFullError, DivergedError, InputError, StoppedError
from iblurry.experiment.environment import Hardware
from iblurry.experiment.folder import RunFolder
from iblurry.launch import ray as module
from iblurry.launch.config import LaunchConfig
from iblurry.launch.job_queue import Job, JobQueue
from iblurry.launch.launch import run, run_all
from iblurry.launch.processes import StopRequest
from iblurry.launch.ray import CopyingClient, RayWorkers
from tests.experiment.small import At, Recorder, checkpoints, kept, small
from tests.experiment.user_callbacks import Mine
from tests.launch.some import EXPLODING, SAVE, SOME, is_free

TWO = [small("er"), small("er", seed=2)]


@pytest.fixture(scope="module")
def ray():
    there = pytest.importorskip("ray", reason="Ray is not installed; pip install 'iblurry[ray]'")
    there.init(
        num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="ERROR"
    )
    yield there
    there.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False])
def test_two_workers_one_killed_in_the_middle(is_shared, ray, alone, tmp_path, capsys, monkeypatch):
    if not is_shared:
        monkeypatch.setattr(RayWorkers, "_marked_folder", lambda self: nullcontext())
    owner = {}  # process ids by job
    callbacks = [Recorder(), At(20, lambda: os.kill(owner[1], signal.SIGKILL)), Recorder(), Recorder()]
    queue = JobQueue(tolerant=True)
    for experiment, callback in zip([*SOME, EXPLODING], callbacks, strict=True):
        queue.add(experiment, Hardware(threads=1, device="cpu"), callback)
    config = LaunchConfig(out=tmp_path, jobs=2, on="ray", checkpoints=SAVE)
    workers, usual = RayWorkers(queue, config, StopRequest()), queue.take

    def take(worker):
        job = usual(worker)
        if isinstance(job, Job):
            owner[job.number] = ray.get(workers.workers[worker].__ray_call__.remote(lambda self: os.getpid()))
        return job

    queue.take = take
    workers.run()
    assert [kept(tmp_path / one.name) for one in SOME] == alone
    assert [type(error) for error in queue.failures.values()] == [DivergedError]
    assert len(callbacks[1].starts) == 2
    assert callbacks[1].starts[1] > 0  # from its checkpoint
    assert any("was lost" in text for text in callbacks[1].messages)
    assert [path.name for path in tmp_path.glob(".*")] == []
    assert capsys.readouterr().out == ""
    assert RunFolder(tmp_path / EXPLODING.name).summary() is None


@pytest.mark.slow
def test_run_all_on_ray(ray, alone, tmp_path):
    failures = {}
    results = run_all(SOME[:1], LaunchConfig(out=tmp_path, on="ray"), failures=failures)
    assert not failures
    assert kept(results[0].folder) == alone[0]


def test_without_ray(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'iblurry\[ray\]'"):
        run_all([small("er")], LaunchConfig(out=tmp_path, on="ray"), failures={})


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


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
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


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
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
@pytest.mark.usefixtures("elsewhere")
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
@pytest.mark.usefixtures("elsewhere")
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


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_callbacks_take_part_there(tmp_path):
    results = run_all(TWO, LaunchConfig(out=tmp_path / "home", on="ray", jobs=2), Mine())
    assert [one.logged for one in results] == [run(one, tmp_path, callback=Mine()).logged for one in TWO]
