"""A sweep: whatever fails, is killed or is in another program's hands, every other run comes to its end."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iblurry.errors import BusyError, DivergedError, StoppedError
from iblurry.experiment.callback import Silent
from iblurry.experiment.environment import Hardware
from iblurry.experiment.run import CheckpointPolicy
from iblurry.launch import job_queue as desk_module
from iblurry.launch.job_queue import LATER, TRIES, Desk
from iblurry.launch.task import Runner, Task
from iblurry.launch.worker import FAILURE, Reported
from iblurry.launch.workers import Plan, run_all
from iblurry.parts import Constant
from tests.experiment.small import kept, small

ROOT = Path(__file__).parents[2]
SOME = [small("er"), small("clib"), small("er", seed=2)]
EXPLODING = dataclasses.replace(
    SOME[0], method=dataclasses.replace(SOME[0].method, name="exploding", schedule=Constant(initial_lr=1e30))
)
SAVE = CheckpointPolicy(samples=2)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The journals and checkpoints of the runs, one after the other."""
    results = run_all(SOME, Plan(out=tmp_path_factory.mktemp("alone"), jobs=1))
    return [kept(one.folder) for one in results]


class Acting(Silent):
    """Acts when its run begins, so many times."""

    def __init__(self, act, times=1):
        super().__init__()
        self.act, self.times = act, times

    def begin(self, name, at, samples):
        super().begin(name, at, samples)
        if self.times:
            self.times -= 1
            self.act()


def send_all(number):
    for worker in multiprocessing.active_children():
        os.kill(worker.pid, number)


def swept(experiments, out, watchers=None, **more):
    failures = {}
    results = run_all(experiments, Plan(out=out, save=SAVE, **more), watchers, failures=failures)
    assert not multiprocessing.active_children()
    return results, failures


def test_a_failing_run_stops_nobody(alone, tmp_path):
    watchers = [Silent() for _ in range(4)]
    results, failures = swept([EXPLODING, *SOME], tmp_path, watchers, jobs=2)
    assert [kept(one.folder) for one in results[1:]] == alone
    assert results[0].summary is None
    assert list(failures) == [EXPLODING.name]
    assert isinstance(failures[EXPLODING.name], DivergedError)
    assert any("failed: The loss is" in said for said in watchers[0].said)
    assert [watcher.at for watcher in watchers[1:]] == [80, 80, 80]


def test_runs_side_by_side_in_a_worker(alone, tmp_path):
    results, failures = swept([EXPLODING, *SOME], tmp_path, pack=3)
    assert [kept(one.folder) for one in results[1:]] == alone
    assert list(failures) == [EXPLODING.name]


def test_killed_workers_are_replaced(alone, tmp_path):
    watchers = [Silent(), Acting(lambda: send_all(signal.SIGKILL)), Silent()]
    results, failures = swept(SOME, tmp_path, watchers, jobs=2)
    assert not failures
    assert [kept(one.folder) for one in results] == alone
    assert any("was killed by SIGKILL" in said and "goes on from its last" in said for said in watchers[1].said)


def test_a_run_that_loses_every_worker_is_given_up(alone, tmp_path):
    watchers = [Acting(lambda: send_all(signal.SIGKILL), times=TRIES), Silent()]
    results, failures = swept(SOME[:2], tmp_path, watchers, jobs=1)
    assert list(failures) == [SOME[0].name]
    assert f"{TRIES}th one" in str(failures[SOME[0].name])
    assert kept(results[1].folder) == alone[1]
    assert watchers[0].times == 0


def test_a_worker_told_to_leave_by_someone_else_is_followed_up(alone, tmp_path):
    watchers = [Acting(lambda: send_all(signal.SIGTERM)), Silent(), Silent()]
    results, failures = swept(SOME, tmp_path, watchers, jobs=1)
    assert not failures
    assert [kept(one.folder) for one in results] == alone


SCRIPT = """
import sys
from pathlib import Path
from iblurry.experiment.run import CheckpointPolicy
from iblurry.launch.workers import Plan, run_all
from tests.experiment.small import small

if __name__ == "__main__":
    some = [small("er"), small("clib"), small("er", seed=2)]
    failures = {}
    results = run_all(some, Plan(out=Path(sys.argv[1]), jobs=2, save=CheckpointPolicy(samples=2)), failures=failures)
    assert not failures, failures
    assert all(one.summary is not None for one in results)
"""


@pytest.mark.parametrize("kills", [False, True])
def test_two_sweeps_of_the_same_folder(kills, alone, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, script, tmp_path / "out"]
    with subprocess.Popen(command, env=environment) as one, subprocess.Popen(command, env=environment) as other:
        if kills:
            end = time.monotonic() + 60
            while not list(tmp_path.glob("out/*/journal.jsonl")):
                assert time.monotonic() < end
                time.sleep(0.01)
            one.kill()
        assert other.wait(120) == 0
        assert one.wait(120) == (-signal.SIGKILL if kills else 0)
    assert [kept(tmp_path / "out" / run.name) for run in SOME] == alone


# ---------------------------------------------------------------------------------------------------- the desk


def desk_of(count, **more):
    return Desk([Task(SOME[n], Hardware(), Silent()) for n in range(count)], **more)


def test_a_run_in_other_hands_is_tried_again(monkeypatch):
    monkeypatch.setattr(desk_module, "AWAY", 0.05)
    desk = desk_of(1, tolerant=True)
    assert desk.take("a")[:2] == (0, SOME[0])
    assert desk.take("b") == LATER  # who has it may be lost
    desk.hear("a", "busy", 0, ())
    assert desk.take("a") == LATER
    time.sleep(0.06)
    assert desk.take("b")[0] == 0
    desk.hear("b", "done", 0, ())
    assert desk.take("a") is None
    assert desk.is_over


def test_an_intolerant_desk_keeps_nobody_waiting():
    desk = desk_of(2)
    assert [desk.take("a")[0], desk.take("b")[0], desk.take("b")] == [0, 1, None]
    desk.hear("a", "fail", 0, [DivergedError("first")])
    desk.hear("b", "fail", 1, [DivergedError("second")])
    assert str(desk.failed) == "first"
    assert not desk.failures


def test_workers_lost_before_they_begin():
    desk = desk_of(1, tolerant=True)
    for _ in range(TRIES):
        assert desk.failed is None
        desk.bury("a", "ended with code 1")
    assert isinstance(desk.failed, StoppedError)
    assert desk.take("b")[0] == 0  # it is nobody's fault


class Recording:
    def __init__(self, *answers):
        self.answers, self.sent = list(answers), []

    def send(self, message):
        self.sent.append(pickle.loads(pickle.dumps(message)))

    def recv(self):
        return self.answers.pop(0)


@pytest.mark.parametrize("tolerant", [True, False])
def test_what_a_worker_tells_of_failures(tolerant, tmp_path):
    line = Recording((5, SOME[0], Hardware()))
    feed = Reported(line, Runner(tmp_path, None, SAVE), tolerant=tolerant)
    task = feed.take()
    (tmp_path / task.experiment.name).mkdir()
    for error in (BusyError("held"), DivergedError("nan"), KeyError("who knows")):
        assert feed.failed(task, error) is tolerant
    told = [(verb, number, *map(type, words)) for verb, number, words in line.sent]
    if tolerant:
        assert told == [("next", -1), ("busy", 5), ("fail", 5, DivergedError), ("fail", 5, StoppedError)]
        assert "KeyError: 'who knows'" in (tmp_path / SOME[0].name / FAILURE).read_text()
    else:
        assert told == [("next", -1), ("fail", 5, BusyError), ("fail", 5, DivergedError)]
