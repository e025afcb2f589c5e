"""Queries whose networks are trained later, several at once: the journal does not show it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.journal import Query, Spent, TaskEnd, read
from iblurry.launch.launch import run
from iblurry.learner import refits
from iblurry.learner.refits import RefitStack
from tests.experiment.small import CrashError, kept, small
from tests.experiment.test_refit_runs import InRefit, _looks_at_every_update, crash, stop  # noqa: F401  a fixture

GDUMB = small(
    "gdumb",
    "shapes:classes=4,train=8,test=5,size=8",
    network="convnet:width=4",
    memory=8,
    query_every=4,
)


@pytest.fixture
def stacks(monkeypatch):
    """Refits are stacked in twos on the CPU; what each stack trained is noted."""
    trained = []
    train = RefitStack.train

    def noted(self, snapshots):
        trained.append([snapshot.seen for snapshot in snapshots])
        train(self, snapshots)

    monkeypatch.setattr(RefitStack, "fits", staticmethod(lambda training, context: context.memory.full))
    monkeypatch.setattr(RefitStack, "train", noted)
    monkeypatch.setattr(refits, "MODELS", 2)
    return trained


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return read(run(GDUMB, tmp_path_factory.mktemp("plain")).folder / "journal.jsonl")


def test_the_journal_is_that_of_refits_one_by_one(tmp_path, stacks, plain):
    done = run(GDUMB, tmp_path, checkpoints=CheckpointPolicy(seconds=1000))
    assert stacks == [[8, 12], [16, 20], [24, 28], [32]]
    records = read(done.folder / "journal.jsonl")
    assert [type(record) for record in records] == [type(record) for record in plain]
    asked = [record for record in records if isinstance(record, Query | TaskEnd)]
    expected = [record for record in plain if isinstance(record, Query | TaskEnd)]
    assert [(one.at, one.total) for one in asked] == [(one.at, one.total) for one in expected]
    assert asked[0] == expected[0]  # the memory was not full
    assert [one for one in records if isinstance(one, Spent)] == [one for one in plain if isinstance(one, Spent)]


@pytest.mark.parametrize("act", [stop, crash])
def test_left_in_a_stack_it_is_trained_again(tmp_path, stacks, act):
    whole = run(GDUMB, tmp_path / "whole")
    del stacks[:]
    for number in (5, 8, 5):  # updates of this sitting; the first three are those of a memory that is not full
        with suppress(CrashError):
            left = run(GDUMB, tmp_path / "left", callback=InRefit(number, act))
            assert left.summary is None
    assert len(stacks) > len(set(map(tuple, stacks)))  # some were begun again
    assert kept(run(GDUMB, tmp_path / "left").folder) == kept(whole.folder)
