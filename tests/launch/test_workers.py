"""Several runs at a time: the same bytes as one after the other, whoever is killed."""

from __future__ import annotations

import dataclasses
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iblurry.data.prefetch import usable_cores
from iblurry.errors import DivergedError, FolderError, InputError, StoppedError
from iblurry.experiment import folder as folder_module
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware
from iblurry.launch import launch, pack
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run, run_all
from iblurry.launch.workers import LocalWorkers
from iblurry.parts import Constant
from tests.experiment.small import At, Recorder, checkpoints, kept, small

ROOT = Path(__file__).parents[2]
SOME = [small("er"), small("clib"), small("er", seed=2)]
SAVE = CheckpointPolicy(samples=2)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The journals and checkpoints of the runs, one after the other."""
    results = run_all(SOME, LaunchConfig(out=tmp_path_factory.mktemp("alone"), jobs=1))
    return [kept(one.folder) for one in results]


@pytest.fixture
def no_workers(monkeypatch):
    monkeypatch.setattr(LocalWorkers, "run", lambda self: pytest.fail("no worker is needed"))


class Acting(Recorder):
    """Acts when its run begins."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def on_run_start(self, name, position, samples):
        super().on_run_start(name, position, samples)
        self.act()


@pytest.mark.slow  # test_sweep has one that is not
@pytest.mark.parametrize("pack", [1, 2])
def test_two_at_a_time_write_the_same_bytes(pack, alone, tmp_path):
    callbacks = [Recorder() for _ in SOME]
    results = run_all(SOME, LaunchConfig(out=tmp_path, jobs=2, pack=pack), callbacks)
    assert [one.experiment for one in results] == SOME
    assert [kept(one.folder) for one in results] == alone
    assert all(one.summary is not None for one in results)
    assert [callback.position for callback in callbacks] == [80, 80, 80]  # what they reported came home


@pytest.mark.slow
def test_a_failing_run_is_raised_and_the_others_are_saved(alone, tmp_path):
    method = dataclasses.replace(SOME[0].method, name="exploding", schedule=Constant(initial_lr=1e30))
    bad = dataclasses.replace(SOME[0], method=method)
    with pytest.raises(DivergedError, match="at sample"):
        run_all([SOME[0], bad, *SOME[1:]], LaunchConfig(out=tmp_path, jobs=2, checkpoints=SAVE))
    assert not multiprocessing.active_children()
    begun = [tmp_path / one.name for one in SOME if (tmp_path / one.name / "journal.jsonl").exists()]
    assert all(checkpoints(folder) for folder in begun)
    results = run_all(SOME, LaunchConfig(out=tmp_path, jobs=1))
    assert [kept(one.folder) for one in results] == alone


@pytest.mark.slow
def test_a_killed_worker_is_said_and_the_same_call_goes_on(alone, tmp_path):
    def kill_both():
        for worker in multiprocessing.active_children():
            os.kill(worker.pid, signal.SIGKILL)

    callbacks = [Acting(lambda: None), Acting(kill_both), Recorder()]
    with pytest.raises(StoppedError, match=r"-shapes-[12]-\w+ .*SIGKILL"):
        run_all(SOME, LaunchConfig(out=tmp_path, jobs=2, checkpoints=SAVE), callbacks)
    results = run_all(SOME, LaunchConfig(out=tmp_path, jobs=1))
    assert [kept(one.folder) for one in results] == alone


@pytest.mark.slow
def test_a_signal_to_the_whole_group_saves_all(alone, tmp_path):
    def ask_all():
        for process in [*multiprocessing.active_children(), multiprocessing.current_process()]:
            os.kill(process.pid, signal.SIGTERM)  # the parent will tell the workers once more

    callbacks = [Recorder(), Acting(ask_all), Recorder()]
    results = run_all(SOME, LaunchConfig(out=tmp_path, jobs=2), callbacks)
    assert not multiprocessing.active_children()
    assert [one.experiment for one in results] == SOME
    assert results[1].summary is None
    for one in results:  # what had begun is saved
        assert one.summary is not None or not one.records or checkpoints(one.folder)
    assert results[0].summary is not None or results[2].records == []  # its turn comes only once another is done
    assert checkpoints(results[1].folder)
    again = run_all(SOME, LaunchConfig(out=tmp_path, jobs=1))
    assert [kept(one.folder) for one in again] == alone


SCRIPT = """
import sys
from pathlib import Path
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run, run_all
from tests.experiment.small import small

if __name__ == "__main__":
    some = [small("er"), small("clib"), small("er", seed=2)]
    run_all(some, LaunchConfig(out=Path(sys.argv[1]), jobs=2, checkpoints=CheckpointPolicy(samples=10)))
"""


def is_free(lock):
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


@pytest.mark.slow
def test_workers_leave_when_their_parent_is_killed(alone, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, script, tmp_path / "out"], env=environment) as parent:
        wait_for(lambda: list(tmp_path.glob("out/*/journal.jsonl")))
        parent.kill()
    for lock in tmp_path.glob("out/*/lock"):
        wait_for(lambda lock=lock: is_free(lock), seconds=5)
    results = run_all(SOME, LaunchConfig(out=tmp_path / "out", jobs=1))
    assert [kept(one.folder) for one in results] == alone


@pytest.mark.usefixtures("no_workers")
def test_who_is_alone_needs_no_worker(tmp_path):
    run_all(SOME[:1], LaunchConfig(out=tmp_path, jobs=2))
    config = LaunchConfig(out=tmp_path, jobs=2)
    results = run_all(SOME[:2], config)  # one is finished, so one is left
    assert all(one.summary is not None for one in results)
    assert run_all(SOME[:2], config) == results
    callback = At(40, lambda: os.kill(os.getpid(), signal.SIGTERM))
    third = dataclasses.replace(SOME[0], seed=3)
    stopped = run_all([*SOME[:2], third], config, [Recorder(), Recorder(), callback])
    assert [one.summary is None for one in stopped] == [False, False, True]


def test_who_asks_one_to_stop_asks_the_next_one_too(tmp_path):
    callback = At(80, lambda: os.kill(os.getpid(), signal.SIGTERM))  # at its last sample, so it is finished
    results = run_all(SOME[:2], LaunchConfig(out=tmp_path, jobs=1), [callback, Recorder()])
    assert [one.summary is None for one in results] == [False, True]
    assert results[1].records == []


@pytest.mark.usefixtures("no_workers")
def test_a_finished_folder_of_someone_else(tmp_path):
    ((done, *_), config) = run_all(SOME[:1], LaunchConfig(out=tmp_path)), LaunchConfig(out=tmp_path, jobs=2)
    path = done.folder / "experiment.json"
    path.write_text(path.read_text().replace('"memory": 24', '"memory": 25'))
    with pytest.raises(FolderError, match=done.folder.name):
        run_all(SOME, config)


def test_the_same_experiment_twice(tmp_path):
    with pytest.raises(InputError, match=SOME[0].name):
        run_all([SOME[0], SOME[1], small("er")], LaunchConfig(out=tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_data_is_loaded_once_for_runs_in_a_row(tmp_path, monkeypatch):
    loaded, load = [], pack.load
    monkeypatch.setattr(pack, "load", lambda spec, home: (loaded.append(spec), load(spec, home))[1])
    run_all([small(samples=10), small(samples=10, seed=2)], LaunchConfig(out=tmp_path, jobs=1))
    assert loaded == [small().dataset]


def test_a_folder_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "LOCK_TIMEOUT", 0.1)
    holder = folder_module.RunFolder(tmp_path / SOME[0].name)
    with holder.locked(), pytest.raises(FolderError, match=SOME[0].name):
        run_all(SOME[:1], LaunchConfig(out=tmp_path))


def test_threads_do_not_depend_on_what_is_left_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.launch.config.usable_cores", lambda: 8)
    heavy = [dataclasses.replace(one, network="resnet18") for one in SOME]
    config = LaunchConfig(out=tmp_path)
    assert config.worker_count(heavy) == 3
    assert config.hardware_for(heavy[0], 3).threads == 2
    assert config.hardware_for(SOME[0], 3).threads == 1  # a small network only loses
    assert LaunchConfig(out=tmp_path, threads=5, jobs=2).hardware_for(heavy[0], 2).threads == 5
    assert LaunchConfig(out=tmp_path, jobs=20).worker_count(SOME) == 3
    given = []
    monkeypatch.setattr(pack.Pack, "run", lambda self: given.append(self.queue.take().hardware.threads))
    finished = tmp_path / heavy[0].name
    finished.mkdir()
    (finished / "summary.json").write_text("{}")
    monkeypatch.setattr(folder_module.RunFolder, "claim", lambda self, experiment: None)
    monkeypatch.setattr(launch, "read_result", lambda *_: None)
    run_all(heavy[:2], config)
    assert given == [4]  # as if both were still to run


def test_a_gpu_is_used_where_there_is_one_and_pays(tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.engine.devices.torch.cuda.is_available", lambda: True)
    given = []
    monkeypatch.setattr(pack.Pack, "run", lambda self: given.append(self.queue.take().hardware.device))
    monkeypatch.setattr(launch, "read_result", lambda *_: None)
    for network in ("resnet18", "mlp"):
        run(dataclasses.replace(SOME[0], network=network), tmp_path)
    run(dataclasses.replace(SOME[0], network="resnet18"), tmp_path, hardware=Hardware(device="cpu"))
    assert given == ["cuda", "cpu", "cpu"]


@pytest.mark.parametrize("bad", [{"jobs": 0}, {"pack": 0}, {"threads": -1}])
def test_bad_plans(bad, tmp_path):
    with pytest.raises(InputError, match=f"{next(iter(bad))}="):
        LaunchConfig(out=tmp_path, **bad)
    assert usable_cores() >= 1
