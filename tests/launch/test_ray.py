"""Runs on a Ray cluster of this machine: the same bytes, with a worker killed in the middle."""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from iblurry.errors import DivergedError, InputError
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware
from iblurry.experiment.folder import RunFolder
from iblurry.launch.config import LaunchConfig
from iblurry.launch.job_queue import Job, JobQueue
from iblurry.launch.launch import run_all
from iblurry.launch.processes import StopRequest
from iblurry.launch.ray import TEMPORARY, RayWorkers
from tests.experiment.small import Recorder, kept, small
from tests.launch.test_sweep import EXPLODING, SOME

SAVE = CheckpointPolicy(samples=2)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    results = run_all(SOME, LaunchConfig(out=tmp_path_factory.mktemp("alone"), jobs=1))
    return [kept(one.folder) for one in results]


@pytest.fixture(scope="module")
def ray():
    there = pytest.importorskip("ray", reason="Ray is not installed; pip install 'iblurry[ray]'")
    there.init(
        num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="ERROR"
    )
    yield there
    there.shutdown()


class Killing(Recorder):
    """Kills the worker of its run in the middle, once."""

    def __init__(self, kill):
        super().__init__()
        self.kill = kill

    def on_progress(self, position, accuracy, lr):
        super().on_progress(position, accuracy, lr)
        if self.kill is not None and position >= 20:
            self.kill()
            self.kill = None


def temporary_folders():
    return set(Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"))


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False])
def test_two_workers_one_killed_in_the_middle(is_shared, ray, alone, tmp_path, capsys, monkeypatch):
    if not is_shared:
        monkeypatch.setattr(RayWorkers, "_marked_folder", lambda self: nullcontext())

    def kill():
        os.kill(owner[1], signal.SIGKILL)

    owner, copies = {}, temporary_folders()  # process ids by job
    callbacks = [Recorder(), Killing(kill), Recorder(), Recorder()]
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
    assert temporary_folders() <= copies


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
