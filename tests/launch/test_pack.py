"""Runs packed into one process: each writes the bytes it writes alone, whatever happens beside it."""

from __future__ import annotations

import dataclasses
import signal
import weakref
from contextlib import contextmanager

import pytest
import torch

from iblurry.data.load import load
from iblurry.engine.eager import Eager
from iblurry.errors import DivergedError, FolderError, RunFailedError
from iblurry.experiment import run_loop
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware
from iblurry.experiment.evaluator import Evaluator
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Query
from iblurry.experiment.run_loop import RunLoop
from iblurry.launch import pack
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run, run_all
from iblurry.launch.workers import LocalWorkers
from iblurry.learner.learner import Learner
from iblurry.parts import Constant
from iblurry.storage import checkpoint
from tests.experiment.small import DATA, At, Recorder, checkpoints, crash, kept, small, stop

SHORT = {"dataset": DATA.replace("train=20", "train=10"), "memory": 12}  # forty samples in two tasks
MIXED = [
    small("er", **SHORT),
    small("gdumb", query_every=10, **SHORT),
    small("clib", **SHORT),
    small("er", seed=2, **SHORT),
    small("clib", samples=25, **SHORT),
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The journals and checkpoints of the runs, one after the other."""
    out = tmp_path_factory.mktemp("alone")
    return [kept(run(one, out, hardware=Hardware(threads=1)).folder) for one in MIXED]


@pytest.fixture(autouse=True)
def _no_workers(monkeypatch):
    monkeypatch.setattr(LocalWorkers, "run", lambda self: pytest.fail("a pack is one process"))


class Telling(Recorder):
    """Writes into a list that others share."""

    def __init__(self, name, events):
        super().__init__()
        self.name, self.events = name, events

    def on_progress(self, position, accuracy, lr):
        super().on_progress(position, accuracy, lr)
        self.events.append((self.name, position))


def finished(out):
    """What the first three, begun or not, end with when they go on, one after the other."""
    return [kept(run(one, out).folder) for one in MIXED[:3]]


@pytest.mark.quick("2")
@pytest.mark.parametrize("size", [2, 9])
def test_packed_runs_write_the_same_bytes(size, alone, tmp_path):
    callbacks = [Recorder() for _ in MIXED]
    results = run_all(MIXED, LaunchConfig(out=tmp_path, pack=size), callbacks)
    assert [one.experiment for one in results] == MIXED
    assert all(one.summary is not None for one in results)
    assert [kept(one.folder) for one in results] == alone
    assert [callback.position for callback in callbacks] == [40, 40, 40, 40, 25]
    assert {one.environment["pack"] for one in results} == {min(size, len(MIXED))}


@pytest.mark.usefixtures("every_sample")
def test_a_sample_each_in_turn_and_the_next_takes_the_place_of_one_that_is_done(tmp_path):
    events = []
    run_all([*MIXED[2:]], LaunchConfig(out=tmp_path, pack=2), [Telling(name, events) for name in "abc"])
    assert events[:4] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert events[78:80] == [("a", 40), ("b", 40)]
    assert events[80:] == [("c", at) for at in range(1, 26)]
    events.clear()
    run_all(
        [MIXED[4], *MIXED[2:4]], LaunchConfig(out=tmp_path / "again", pack=2), [Telling(name, events) for name in "abc"]
    )
    assert events[48:54] == [("a", 25), ("b", 25), ("b", 26), ("b", 27), ("c", 1), ("b", 28)]


def test_a_failing_run_is_raised_and_the_others_are_saved(alone, tmp_path):
    method = dataclasses.replace(MIXED[0].method, name="exploding", schedule=Constant(initial_lr=1e30))
    bad = dataclasses.replace(MIXED[0], method=method)
    config = LaunchConfig(out=tmp_path, pack=3, checkpoints=CheckpointPolicy(samples=2))
    with pytest.raises(DivergedError, match="at sample"):
        run_all([MIXED[0], bad, *MIXED[1:]], config)
    first, second, *others = [tmp_path / one.name for one in MIXED]
    assert checkpoints(first)
    assert checkpoints(second)
    assert not any(folder.exists() for folder in others)  # their turn had not come
    assert finished(tmp_path) == alone[:3]


def test_one_that_cannot_begin_stops_those_that_have(alone, tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.experiment.folder.LOCK_TIMEOUT", 0.1)
    with RunFolder(tmp_path / MIXED[2].name).locked(), pytest.raises(FolderError, match=MIXED[2].name):
        run_all(MIXED, LaunchConfig(out=tmp_path, pack=3))
    assert [path.stem[-2:] for one in MIXED[:2] for path in checkpoints(tmp_path / one.name)] == ["01", "01"]
    assert finished(tmp_path) == alone[:3]


@pytest.mark.usefixtures("every_sample")
def test_a_signal_saves_all_and_the_same_call_goes_on(alone, tmp_path):
    callbacks = [Recorder(), Recorder(), At(17, stop), Recorder(), Recorder()]
    stopped = run_all(MIXED, LaunchConfig(out=tmp_path, pack=3), callbacks)
    assert all(one.summary is None for one in stopped)
    assert [path.stem[-2:] for one in stopped for path in checkpoints(one.folder)] == ["17", "17", "17"]
    assert [one.records for one in stopped[3:]] == [[], []]
    again = run_all(MIXED, LaunchConfig(out=tmp_path, pack=3))
    assert [kept(one.folder) for one in again] == alone


@pytest.mark.slow
def test_a_signal_in_a_refit_is_heard_there(alone, tmp_path, monkeypatch):
    refitting = run_loop.RunLoop._on_refit_update

    def stopping(self, done, updates):
        if self.stream.position == 20 and done == 2 < updates:
            stop()
        refitting(self, done, updates)

    monkeypatch.setattr(run_loop.RunLoop, "_on_refit_update", stopping)
    stopped = run_all(MIXED[:3], LaunchConfig(out=tmp_path, pack=3))
    ended = [[path.stem[-2:] for path in checkpoints(one.folder)] for one in stopped]
    assert ended == [["20"], ["20"], ["19"]]  # the third had not had its turn
    assert max(record.at for record in stopped[1].records if isinstance(record, Query)) == 10  # left before its answer
    assert run_all(MIXED[:3], LaunchConfig(out=tmp_path, pack=2))[1].summary is not None
    assert finished(tmp_path) == alone[:3]


@pytest.mark.usefixtures("every_sample")
@pytest.mark.parametrize("end", [crash, lambda: (stop(), stop())])
def test_a_second_signal_or_crash_leaves_nothing_held(end, alone, tmp_path, monkeypatch):
    """An error nobody expected lets the others save; a second signal does not. Either way all can go on."""

    def ended(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, ended)
    try:
        callbacks = [Recorder(), Recorder(), At(17, end), Recorder(), Recorder()]
        with pytest.raises((RunFailedError, KeyboardInterrupt)):
            run_all(MIXED, LaunchConfig(out=tmp_path, pack=3, checkpoints=CheckpointPolicy(samples=5)), callbacks)
    finally:
        signal.signal(signal.SIGTERM, before)
    newest = [checkpoints(tmp_path / one.name)[-1].stem[-2:] for one in MIXED[:3]]
    assert newest == (["17", "17", "15"] if end is crash else ["15", "15", "15"])
    monkeypatch.setattr("iblurry.experiment.folder.LOCK_TIMEOUT", 0.0)
    assert finished(tmp_path) == alone[:3]


def test_steps_that_are_not_resumed_end_as_if_they_had_been_killed(alone, tmp_path):
    begun = RunLoop(
        MIXED[0],
        tmp_path,
        load=load,
        tell=lambda *_: None,
        checkpoints=CheckpointPolicy(samples=5),
        hardware=Hardware(device="cpu", threads=1),
        should_stop=lambda: False,
    )
    assert begun.advance(17)
    begun.close()
    assert [path.stem[-2:] for path in checkpoints(tmp_path / MIXED[0].name)] == ["10", "15"]
    assert kept(run(MIXED[0], tmp_path).folder) == alone[0]


@pytest.mark.slow
def test_each_run_keeps_the_threads_it_began_with(tmp_path):
    seen = []

    def look():
        seen.append(torch.get_num_threads())

    run(MIXED[0], tmp_path, callback=At(20, stop), hardware=Hardware(threads=2))
    run_all(MIXED[2:3] + MIXED[:1], LaunchConfig(out=tmp_path, pack=2), [At(40, look), At(40, look)])
    assert sorted(seen) == [1, 2]
    assert torch.get_num_threads() == 1  # as before


@pytest.mark.slow
def test_all_that_a_run_does_on_the_device_it_does_in_its_cuda_stream(alone, tmp_path, monkeypatch):
    entered = []

    @contextmanager
    def cuda_stream(self):
        entered.append(self)
        yield
        assert entered.pop() is self

    def watched(owner, name, engine_of, *, after=False):
        act, calls = getattr(owner, name), []

        def act_in_stream(*args, **options):
            done = act(*args, **options) if after else None
            calls.append(name)
            engine = engine_of(*args)
            assert engine is None or engine is entered[-1]
            assert len(entered) == 1
            return done if after else act(*args, **options)

        monkeypatch.setattr(owner, name, act_in_stream)
        return calls

    monkeypatch.setattr(Eager, "cuda_stream", cuda_stream)
    done = [
        watched(Learner, "__init__", lambda self, *_: self.engine, after=True),
        watched(Learner, "observe", lambda self, *_: self.engine),
        watched(Learner, "state_dict", lambda self: self.engine),
        watched(Learner, "load_state_dict", lambda self, _: self.engine),
        watched(Evaluator, "__init__", lambda *_: None),
        watched(Evaluator, "ask", lambda self, learner: learner.engine),
        watched(checkpoint, "save", lambda *_: None),
    ]
    run_all(MIXED, LaunchConfig(out=tmp_path, pack=3), [Recorder(), Recorder(), At(20, stop), Recorder(), Recorder()])
    run(MIXED[0], tmp_path)
    results = run_all(MIXED, LaunchConfig(out=tmp_path, pack=2))
    assert [kept(one.folder) for one in results] == alone
    assert all(done)
    assert entered == []


@pytest.mark.slow
def test_a_run_that_is_done_leaves_its_memory_to_the_next(tmp_path, monkeypatch):
    alive, most, make = weakref.WeakSet(), [], Learner.__init__

    def made(self, *args, **options):
        make(self, *args, **options)
        alive.add(self)
        most.append(len(alive))

    monkeypatch.setattr(Learner, "__init__", made)
    run_all(MIXED, LaunchConfig(out=tmp_path, pack=2))
    assert most == [1, 2, 1, 2, 1]  # those of one length end in the same turn


@pytest.mark.slow
def test_data_is_loaded_once(tmp_path, monkeypatch):
    loaded, really = [], pack.load
    monkeypatch.setattr(pack, "load", lambda spec, home: (loaded.append(spec), really(spec, home))[1])
    other = DATA.replace("train=20", "train=15")
    some = [small(dataset=spec, samples=10, seed=seed) for seed in (1, 2) for spec in (DATA, other)]
    run_all(some, LaunchConfig(out=tmp_path, pack=3))
    assert loaded == [DATA, other]
    loaded.clear()
    run_all(some, LaunchConfig(out=tmp_path, pack=3))  # finished: nothing is needed
    assert loaded == []
