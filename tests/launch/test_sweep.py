"""A sweep: whatever fails, is killed or is in another program's hands, every other run comes to its end."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iblurry.errors import DivergedError
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.launch.config import LaunchConfig
from iblurry.launch.job_queue import TRIES
from iblurry.launch.launch import run_all
from iblurry.parts import Constant
from tests.experiment.small import Recorder, kept, small

ROOT = Path(__file__).parents[2]
SOME = [small("er"), small("clib"), small("er", seed=2)]
EXPLODING = dataclasses.replace(
    SOME[0], method=dataclasses.replace(SOME[0].method, name="exploding", schedule=Constant(initial_lr=1e30))
)
SAVE = CheckpointPolicy(samples=2)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The journals and checkpoints of the runs, one after the other."""
    results = run_all(SOME, LaunchConfig(out=tmp_path_factory.mktemp("alone"), jobs=1))
    return [kept(one.folder) for one in results]


class Acting(Recorder):
    """Acts when its run begins, so many times."""

    def __init__(self, act, times=1):
        super().__init__()
        self.act, self.times = act, times

    def on_run_start(self, name, position, samples):
        super().on_run_start(name, position, samples)
        if self.times:
            self.times -= 1
            self.act()


def send_all(number):
    for worker in multiprocessing.active_children():
        os.kill(worker.pid, number)


def swept(experiments, out, callbacks=None, **more):
    failures = {}
    results = run_all(experiments, LaunchConfig(out=out, checkpoints=SAVE, **more), callbacks, failures=failures)
    assert not multiprocessing.active_children()
    return results, failures


@pytest.mark.slow
def test_a_failing_run_stops_nobody(alone, tmp_path):
    class Ended(Recorder):
        times = 0

        def on_run_end(self):
            self.times += 1

    callbacks = [Ended() for _ in range(4)]
    results, failures = swept([EXPLODING, *SOME], tmp_path, callbacks, jobs=2)
    assert [one.experiment for one in results] == [EXPLODING, *SOME]
    assert [kept(one.folder) for one in results[1:]] == alone
    assert results[0].summary is None
    assert list(failures) == [EXPLODING.name]
    assert isinstance(failures[EXPLODING.name], DivergedError)
    assert any("failed: " in text for text in callbacks[0].messages)
    assert [callback.position for callback in callbacks[1:]] == [80, 80, 80]
    assert [callback.times for callback in callbacks] == [0, 1, 1, 1]


@pytest.mark.slow
def test_runs_side_by_side_in_a_worker(alone, tmp_path):
    results, failures = swept([EXPLODING, *SOME], tmp_path, pack=3)
    assert [kept(one.folder) for one in results[1:]] == alone
    assert list(failures) == [EXPLODING.name]


@pytest.mark.slow
def test_killed_workers_are_replaced(alone, tmp_path):
    callbacks = [Recorder(), Acting(lambda: send_all(signal.SIGKILL)), Recorder()]
    results, failures = swept(SOME, tmp_path, callbacks, jobs=2)
    assert not failures
    assert [kept(one.folder) for one in results] == alone
    assert any("SIGKILL" in text for text in callbacks[1].messages)


@pytest.mark.slow
def test_a_run_that_loses_every_worker_is_given_up(alone, tmp_path):
    callbacks = [Acting(lambda: send_all(signal.SIGKILL), times=TRIES), Recorder()]
    results, failures = swept(SOME[:2], tmp_path, callbacks, jobs=1)
    assert list(failures) == [SOME[0].name]
    assert f"{TRIES}th one" in str(failures[SOME[0].name])
    assert kept(results[1].folder) == alone[1]
    assert callbacks[0].times == 0


@pytest.mark.slow
def test_a_worker_told_to_leave_by_someone_else_is_followed_up(alone, tmp_path):
    callbacks = [Acting(lambda: send_all(signal.SIGTERM)), Recorder(), Recorder()]
    results, failures = swept(SOME, tmp_path, callbacks, jobs=1)
    assert not failures
    assert [kept(one.folder) for one in results] == alone


SCRIPT = """
import sys
from pathlib import Path
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run_all
from tests.experiment.small import small

if __name__ == "__main__":
    some = [small("er"), small("clib"), small("er", seed=2)]
    failures = {}
    config = LaunchConfig(out=Path(sys.argv[1]), jobs=2, checkpoints=CheckpointPolicy(samples=2))
    results = run_all(some, config, failures=failures)
    assert not failures, failures
    assert all(one.summary is not None for one in results)
"""


@pytest.mark.slow
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
