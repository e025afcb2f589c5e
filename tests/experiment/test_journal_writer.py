"""Answers that come late: the journal waits for them in its order, a checkpoint for all of them."""

from __future__ import annotations

import json
import os
import signal

import pytest
import torch

from iblurry.errors import DivergedError
from iblurry.experiment import run_loop
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.evaluator import Evaluator, PendingAnswer
from iblurry.experiment.journal import Journal, NewClass, Pending, Query, TaskEnd, read
from iblurry.launch.launch import run
from iblurry.learner.learner import Learner
from iblurry.storage import checkpoint
from tests.experiment.small import At, Recorder, checkpoints, kept, small

NEVER = 10**9


class Late(PendingAnswer):
    """Is not there before it was asked for so often; who cannot wait for that waits here."""

    def __init__(self, values, totals, *, at, lr, patience=NEVER):
        super().__init__(values, totals, at=at, lr=lr)
        self.patience = patience

    def is_ready(self):
        self.patience -= 1
        return self.patience < 0


def asked(kind, at, answer):
    return Pending(lambda: kind(at, 0, *answer.counts(), 0.1, at), answer.is_ready)


def late(right, patience, finite=True):
    return Late(torch.tensor([right, int(finite)]), (10,), at=7, lr=0.1, patience=patience)


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.jsonl") as journal:
        yield journal


def lines(journal):
    return [(line["kind"], line["at"]) for line in map(json.loads, journal.path.read_bytes().splitlines())]


def test_nothing_overtakes_an_answer(journal):
    journal.put(NewClass(1, "ant"))
    journal.put(asked(Query, 7, late(3, patience=3)))
    journal.put(NewClass(8, "bee"))
    journal.put(asked(TaskEnd, 8, late(4, patience=0)))
    assert lines(journal) == [("class", 1)]
    assert journal.accuracy is None
    journal.write()  # the fourth time it is asked for
    assert lines(journal) == [("class", 1), ("query", 7), ("class", 8), ("task", 8)]
    assert journal.accuracy == 0.4


def test_who_flushes_waits_for_all(journal):
    journal.put(asked(Query, 7, late(3, patience=NEVER)))
    journal.put(asked(Query, 14, late(5, patience=NEVER)))
    journal.put(NewClass(15, "bee"))
    journal.write()
    assert lines(journal) == []
    journal.flush()
    assert lines(journal) == [("query", 7), ("query", 14), ("class", 15)]
    assert journal.accuracy == 0.5


def test_a_broken_answer_is_raised_in_its_turn(journal):
    journal.put(asked(Query, 6, late(3, patience=NEVER)))
    journal.put(asked(Query, 7, late(0, patience=NEVER, finite=False)))
    journal.put(NewClass(8, "bee"))
    with pytest.raises(DivergedError, match=r"sample 7.* 0\.1"):
        journal.flush()
    assert lines(journal) == [("query", 6)]


class Slow:
    """A clock of which a whole run takes less than a second."""

    now, tick = 0.0, 1e-5

    def monotonic(self):
        self.now += self.tick
        return self.now


@pytest.fixture
def remote(monkeypatch):
    """Runs as on a device that goes its own way; `remote(patience)` says how late its answers are. Gives the clock."""

    def remote(patience):
        ask, clock = Evaluator.ask, Slow()

        def ask_late(self, learner):
            answer = ask(self, learner)
            return Late(
                torch.tensor(answer._values.tolist()), answer.totals, at=answer.at, lr=answer.lr, patience=patience
            )

        monkeypatch.setattr(Evaluator, "ask", ask_late)
        monkeypatch.setattr(run_loop.RunLoop, "has_remote_tensors", True)
        monkeypatch.setattr(run_loop, "PROGRESS_EVERY", 1)
        monkeypatch.setattr(run_loop, "time", clock)
        return clock

    return remote


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What runs end with whose answers come at once."""
    out = tmp_path_factory.mktemp("whole")
    return {name: kept(run(small(name), out).folder) for name in ("er", "clib", "gdumb")}


class Reading(Recorder):
    """Reads the journal at every sample."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.journals, self.accuracies = folder, [], []

    def on_progress(self, position, accuracy, lr):
        super().on_progress(position, accuracy, lr)
        self.journals.append((self.folder / "journal.jsonl").read_bytes())
        self.accuracies.append(accuracy)


@pytest.mark.quick("2-er", "10-clib", "1000000000-gdumb")
@pytest.mark.parametrize("name", ["er", "clib", "gdumb"])
@pytest.mark.parametrize("patience", [2, 10, NEVER])
def test_the_same_bytes_however_late_the_answers(name, patience, remote, tmp_path, whole):
    remote(patience)
    callback = Reading(tmp_path / small(name).name)
    done = run(small(name), tmp_path, callback=callback)
    assert kept(done.folder) == whole[name]
    assert all(whole[name][0].startswith(journal) for journal in callback.journals)  # never ahead, never out of order
    first = whole[name][0].index(b'{"kind":"query"')
    if patience == NEVER:
        assert all(len(journal) <= first for journal in callback.journals[:-1])
    else:
        assert len(callback.journals[6 + patience]) > first  # of the seventh sample
    assert callback.accuracies[5:7] == [None, None]
    assert callback.accuracies[-1] == done.metrics.a_last  # the last word is complete


def test_a_checkpoint_waits_for_all_answers(remote, tmp_path, monkeypatch, whole):
    remote(NEVER)
    seen, save = [], checkpoint.save

    def saved(folder, state, *, at, trusted):
        seen.append((at, max(record.at for record in read(folder / "journal.jsonl")[1:])))
        assert state["journal"]["bytes"] == len((folder / "journal.jsonl").read_bytes())
        save(folder, state, at=at, trusted=trusted)

    monkeypatch.setattr(checkpoint, "save", saved)
    done = run(small(), tmp_path, checkpoints=CheckpointPolicy(samples=30))
    assert seen == [(30, 28), (60, 56), (80, 80)]
    assert kept(done.folder) == whole["er"]


def test_a_polite_stop_waits_for_them_too(remote, tmp_path, whole):
    remote(NEVER)
    stopped = run(small(), tmp_path, callback=At(33, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert stopped.metrics.samples == 28
    assert [path.stem[-2:] for path in checkpoints(stopped.folder)] == ["33"]
    assert kept(run(small(), tmp_path).folder) == whole["er"]


def test_what_is_broken_is_named_by_the_sample_it_was_asked_at(remote, tmp_path, monkeypatch):
    remote(NEVER)
    observe = Learner.observe

    def spoilt(self, image, label):
        observe(self, image, label)
        if self.context.seen == 21:  # a multiple of query_every
            with torch.no_grad():
                self.context.network.head.weight[0, 0] = float("nan")

    monkeypatch.setattr(Learner, "observe", spoilt)
    callback = Recorder()
    with pytest.raises(DivergedError, match=r"sample 21.*sample 20"):
        run(small(), tmp_path, callback=callback, checkpoints=CheckpointPolicy(samples=10))
    assert callback.position == 30  # noticed where somebody had to wait
    assert max(record.at for record in read(tmp_path / small().name / "journal.jsonl")[1:]) < 21


@pytest.mark.parametrize("tick, checks", [(1e-5, 1), (0.6, 41), (1.5, 81)])
def test_the_loss_is_looked_at_once_a_second_where_it_has_to_be_waited_for(tick, checks, remote, tmp_path, monkeypatch):
    remote(0).tick = tick  # seconds from sample to sample
    calls, check = [], Learner.check
    monkeypatch.setattr(Learner, "check", lambda self: (calls.append(self.context.seen), check(self)))
    run(small(), tmp_path, checkpoints=CheckpointPolicy(seconds=1e9))
    assert len(calls) == checks  # the last one before it is saved
