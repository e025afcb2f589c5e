"""Runs on a Ray cluster of this machine: the same bytes, with a worker killed in the middle."""

from __future__ import annotations

import os
import signal

import pytest

from iblurry.errors import DivergedError, InputError
from iblurry.experiment.callback import Silent
from iblurry.experiment.environment import Hardware
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.run import CheckpointPolicy
from iblurry.launch.cluster import Cluster
from iblurry.launch.task import Runner, Task
from iblurry.launch.workers import Plan, run_all
from tests.experiment.small import kept, small
from tests.launch.test_sweep import EXPLODING, SOME

SAVE = CheckpointPolicy(samples=2)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    results = run_all(SOME, Plan(out=tmp_path_factory.mktemp("alone"), jobs=1))
    return [kept(one.folder) for one in results]


@pytest.fixture(scope="module")
def ray():
    there = pytest.importorskip("ray", reason="Ray is not installed; pip install 'iblurry[ray]'")
    there.init(
        num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="ERROR"
    )
    yield there
    there.shutdown()


class Killing(Silent):
    """Kills the worker of its run in the middle, once."""

    def __init__(self, victim):
        super().__init__()
        self.victim, self.begun = victim, []

    def begin(self, name, at, samples):
        super().begin(name, at, samples)
        self.begun.append(at)

    def move(self, at, accuracy, rate):
        super().move(at, accuracy, rate)
        if self.victim is not None and at >= 20:
            self.victim()
            self.victim = None


@pytest.mark.parametrize("shared", [True, False])
def test_two_workers_one_killed_in_the_middle(shared, ray, alone, tmp_path, capsys):
    def kill():
        os.kill(owner[SOME[1].name], signal.SIGKILL)

    owner = {}
    watchers = [Silent(), Killing(kill), Silent(), Silent()]
    tasks = [Task(one, Hardware(threads=1), watcher) for one, watcher in zip([*SOME, EXPLODING], watchers, strict=True)]
    runner = Runner(tmp_path, None, SAVE, patience=0.0)
    sweep = Cluster(tasks, runner, 2, shared=shared)
    usual = sweep.desk.take

    def taking(worker):
        given = usual(worker)
        if isinstance(given, tuple):
            owner[given[1].name] = ray.get(sweep.workers[worker].__ray_call__.remote(lambda self: os.getpid()))
        return given

    sweep.desk.take = taking
    sweep.go()
    assert [kept(tmp_path / one.name) for one in SOME] == alone
    assert [type(error) for error in sweep.desk.failures.values()] == [DivergedError]
    assert len(watchers[1].begun) == 2
    assert watchers[1].begun[1] > 0  # from its checkpoint
    assert any("was lost" in said for said in watchers[1].said)
    assert [path.name for path in tmp_path.glob(".*")] == []
    assert capsys.readouterr().out == ""
    assert RunFolder(tmp_path / EXPLODING.name).summary() is None


def test_by_the_plan(ray, alone, tmp_path):
    failures = {}
    results = run_all(SOME[:1], Plan(out=tmp_path, on="ray"), failures=failures)
    assert not failures
    assert kept(results[0].folder) == alone[0]


def test_without_ray(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'iblurry\[ray\]'"):
        run_all([small("er")], Plan(out=tmp_path, on="ray"), failures={})
