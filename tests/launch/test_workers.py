"""Worker processes: the same bytes as one run after the other, whoever fails, is killed or is told to stop."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iblurry import Callback
from iblurry.errors import DivergedError, FolderError, InputError, StoppedError
from iblurry.experiment import folder as folder_module
from iblurry.experiment.environment import Hardware
from iblurry.launch import launch, pack
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run, run_all
from iblurry.launch.workers import LocalWorkers
from tests.experiment.small import At, Recorder, checkpoints, kept, small, stop
from tests.experiment.user_callbacks import Mine, ReadEverything, StopAt
from tests.launch.some import EXPLODING, SAVE, SOME, Acting, is_free, wait_for

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_workers(monkeypatch):
    monkeypatch.setattr(LocalWorkers, "run", lambda self: pytest.fail("no worker is needed"))


def send_all(number, *more):
    for process in [*multiprocessing.active_children(), *more]:
        os.kill(process.pid, number)


def swept(experiments, out, callbacks=None, **more):
    """What a tolerant launch gives, and its failures."""
    failures = {}
    results = run_all(experiments, LaunchConfig(out=out, checkpoints=SAVE, **more), callbacks, failures=failures)
    assert not multiprocessing.active_children()
    return results, failures


@pytest.mark.slow
def test_two_at_a_time_write_the_same_bytes(alone, tmp_path):
    callbacks = [Recorder() for _ in SOME]
    results = run_all(SOME, LaunchConfig(out=tmp_path, jobs=2), callbacks)
    assert [one.experiment for one in results] == SOME
    assert [kept(one.folder) for one in results] == alone
    assert all(one.summary is not None for one in results)
    assert [callback.position for callback in callbacks] == [80, 80, 80]  # what they reported came home


@pytest.mark.slow
def test_callbacks_that_take_part_do_so_in_workers(tmp_path):
    two, watching = [small("er"), small("clib", seed=2)], [Recorder(), Recorder()]
    given = [[ReadEverything(), watching[0]], [ReadEverything(), StopAt(), watching[1]]]
    here = [run(one, tmp_path / "here", callback=some) for one, some in zip(two, given, strict=True)]
    config = LaunchConfig(out=tmp_path / "there", jobs=2)
    there = run_all(two, config, given)
    assert [kept(one.folder) for one in there] == [kept(one.folder) for one in here]
    assert there[1].stopped.at == 40
    assert any("stopped early" in text for text in watching[1].messages)
    assert [one.records for one in run_all(two, config, given)] == [one.records for one in there]
    with pytest.raises(FolderError, match="Mine"):
        run_all(two, config, Mine())


def test_a_callback_that_cannot_travel_is_refused_before_the_first_run(tmp_path):
    class Local(Callback):
        def on_sample(self, run, sample):
            run.log("local", 1)

    assert run(small(), tmp_path / "here", callback=Local()).logged
    with pytest.raises(InputError, match="Local"):
        run_all(SOME, LaunchConfig(out=tmp_path / "there", jobs=2), Local())
    assert not (tmp_path / "there").exists()


@pytest.mark.slow
def test_a_failing_run_stops_nobody_where_failures_are_gathered(alone, tmp_path):
    class Ended(Recorder):
        times = 0

        def on_run_end(self):
            self.times += 1

    callbacks = [Ended() for _ in range(4)]
    results, failures = swept([EXPLODING, *SOME], tmp_path, callbacks, jobs=2, pack=2)
    assert [one.experiment for one in results] == [EXPLODING, *SOME]
    assert [kept(one.folder) for one in results[1:]] == alone
    assert results[0].summary is None
    assert list(failures) == [EXPLODING.name]
    assert isinstance(failures[EXPLODING.name], DivergedError)
    assert any("failed: " in text for text in callbacks[0].messages)
    assert [callback.times for callback in callbacks] == [0, 1, 1, 1]


@pytest.mark.slow
def test_otherwise_it_is_raised_and_the_others_are_saved(alone, tmp_path):
    with pytest.raises(DivergedError):
        run_all([SOME[0], EXPLODING, *SOME[1:]], LaunchConfig(out=tmp_path, jobs=2, checkpoints=SAVE))
    assert not multiprocessing.active_children()
    begun = [tmp_path / one.name for one in SOME if (tmp_path / one.name / "journal.jsonl").exists()]
    assert all(checkpoints(folder) for folder in begun)
    assert [kept(one.folder) for one in run_all(SOME, LaunchConfig(out=tmp_path, jobs=1))] == alone


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_workers_are_replaced_where_failures_are_gathered(number, alone, tmp_path):
    callbacks = [Recorder(), Acting(lambda: send_all(number)), Recorder()]
    results, failures = swept(SOME, tmp_path, callbacks, jobs=2)
    assert not failures
    assert [kept(one.folder) for one in results] == alone
    assert number == signal.SIGTERM or any("SIGKILL" in text for text in callbacks[1].messages)


@pytest.mark.slow
def test_otherwise_that_is_said_and_the_same_call_goes_on(alone, tmp_path):
    callbacks = [Recorder(), Acting(lambda: send_all(signal.SIGKILL)), Recorder()]
    with pytest.raises(StoppedError, match="SIGKILL"):
        run_all(SOME, LaunchConfig(out=tmp_path, jobs=2, checkpoints=SAVE), callbacks)
    assert [kept(one.folder) for one in run_all(SOME, LaunchConfig(out=tmp_path, jobs=1))] == alone


@pytest.mark.slow
def test_a_signal_to_the_whole_group_saves_all(alone, tmp_path):
    ask_all = Acting(lambda: send_all(signal.SIGTERM, multiprocessing.current_process()))
    results = run_all(SOME, LaunchConfig(out=tmp_path, jobs=2), [Recorder(), ask_all, Recorder()])
    assert not multiprocessing.active_children()
    assert results[1].summary is None
    for one in results:  # what had begun is saved
        assert one.summary is not None or not one.records or checkpoints(one.folder)
    assert results[0].summary is not None or results[2].records == []  # its turn comes only once another is done
    assert checkpoints(results[1].folder)
    assert [kept(one.folder) for one in run_all(SOME, LaunchConfig(out=tmp_path, jobs=1))] == alone


SCRIPT = """
import sys
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run_all
from tests.launch.some import SAVE, SOME

if __name__ == "__main__":
    failures = {}
    results = run_all(SOME, LaunchConfig(out=sys.argv[1], jobs=2, checkpoints=SAVE), failures=failures)
    assert not failures, failures
    assert all(one.summary is not None for one in results)
"""


def begin(tmp_path):
    """A program that launches SOME."""
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, tmp_path / "script.py", tmp_path / "out"], env=environment)


@pytest.mark.slow
def test_workers_leave_when_their_parent_is_killed(alone, tmp_path):
    with begin(tmp_path) as parent:
        wait_for(lambda: list(tmp_path.glob("out/*/journal.jsonl")))
        parent.kill()
    for lock in tmp_path.glob("out/*/lock"):
        wait_for(lambda lock=lock: is_free(lock.parent), seconds=5)
    assert [kept(one.folder) for one in run_all(SOME, LaunchConfig(out=tmp_path / "out", jobs=1))] == alone


@pytest.mark.usefixtures("no_workers")
def test_who_is_alone_needs_no_worker(tmp_path):
    run_all(SOME[:1], LaunchConfig(out=tmp_path, jobs=2))
    config = LaunchConfig(out=tmp_path, jobs=2)
    results = run_all(SOME[:2], config)  # one is finished, so one is left
    assert all(one.summary is not None for one in results)
    assert run_all(SOME[:2], config) == results
    callback = At(40, stop)
    third = dataclasses.replace(SOME[0], seed=3)
    stopped = run_all([*SOME[:2], third], config, [Recorder(), Recorder(), callback])
    assert [one.summary is None for one in stopped] == [False, False, True]


def test_who_asks_one_to_stop_asks_the_next_one_too(tmp_path):
    callback = At(80, stop)  # at its last sample, so it is finished
    results = run_all(SOME[:2], LaunchConfig(out=tmp_path, jobs=1), [callback, Recorder()])
    assert [one.summary is None for one in results] == [False, True]
    assert results[1].records == []


@pytest.mark.usefixtures("no_workers")
def test_a_finished_folder_of_someone_else(tmp_path):
    (done,) = run_all(SOME[:1], LaunchConfig(out=tmp_path))
    path = done.folder / "experiment.json"
    path.write_text(path.read_text().replace('"memory": 24', '"memory": 25'))
    with pytest.raises(FolderError, match=done.folder.name):
        run_all(SOME, LaunchConfig(out=tmp_path, jobs=2))


def test_the_same_experiment_twice(tmp_path):
    with pytest.raises(InputError, match=SOME[0].name):
        run_all([SOME[0], SOME[1], small("er")], LaunchConfig(out=tmp_path))
    assert not list(tmp_path.iterdir())


def test_threads_do_not_depend_on_what_is_left_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.launch.config.usable_cores", lambda: 8)
    heavy = [dataclasses.replace(one, network="resnet18") for one in SOME]
    config = LaunchConfig(out=tmp_path)
    assert config.worker_count(heavy) == 3
    assert config.hardware_for(heavy[0], 3).threads == 2
    assert config.hardware_for(SOME[0], 3).threads == 1  # a small network only loses
    assert LaunchConfig(out=tmp_path, threads=5, jobs=2).hardware_for(heavy[0], 2).threads == 5
    assert LaunchConfig(out=tmp_path, jobs=20).worker_count(SOME) == 3
    for jobs, size, workers in ((1, 3, 1), (None, 3, 1), (5, 2, 2)):  # three runs in packs of two fill two
        assert LaunchConfig(out=tmp_path, jobs=jobs, pack=size).worker_count(heavy) == workers
    assert config.hardware_for(heavy[0], 1).threads == 8  # runs of a pack take turns
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


@pytest.mark.slow
@pytest.mark.parametrize("kills", [False, True])
def test_two_sweeps_of_the_same_folder(kills, alone, tmp_path):
    with begin(tmp_path) as one, begin(tmp_path) as other:
        if kills:
            wait_for(lambda: list(tmp_path.glob("out/*/journal.jsonl")))
            one.kill()
        assert other.wait(120) == 0
        assert one.wait(120) == (-signal.SIGKILL if kills else 0)
    assert [kept(tmp_path / "out" / run.name) for run in SOME] == alone
