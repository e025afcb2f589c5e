"""The laws of a learner, each crossed with every method."""

from __future__ import annotations

import copy
import itertools
import json

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from iblurry.engine.eager import Eager
from iblurry.learner.learner import Learner
from iblurry.methods.method import Method
from iblurry.storage import checkpoint
from tests.laws.lawful import BUDGET, SAMPLES, assert_same_state, leaves, new_learner
from tests.no_sync import NoSync

TASK_ENDS = (20, 40)
WHOLE: dict[Method, Learner] = {}


def feed(learner, samples, start=0, stop=SAMPLES):
    for at, (image, label) in enumerate(samples[start:stop], start=start + 1):
        learner.observe(image, label)
        if at in TASK_ENDS:
            learner.end_task()


@pytest.fixture
def whole(lawful, samples) -> Learner:
    """It was fed everything without a disturbance; shared by the laws, so nobody may feed it more."""
    if lawful not in WHOLE:
        WHOLE[lawful] = new_learner(lawful)
        feed(WHOLE[lawful], samples)
    return WHOLE[lawful]


def test_resume(lawful, whole, samples, tmp_path):
    """Again and again: 13 and 45 lie inside a round of ER, 30 right after a new class."""
    resumed = new_learner(lawful)
    for start, stop in itertools.pairwise([0, 1, 13, 30, 45, SAMPLES]):
        feed(resumed, samples, start, stop)
        checkpoint.save(tmp_path, resumed.state_dict(), at=stop)
        before, resumed = resumed, new_learner(lawful)
        resumed.load_state_dict(checkpoint.load_latest(tmp_path).state)
        assert_same_state(resumed.state_dict(), before.state_dict())
    assert_same_state(resumed.state_dict(), whole.state_dict())


def test_saved_to_a_file(lawful, whole, samples, questions, tmp_path):
    first = new_learner(lawful)
    feed(first, samples, stop=45)
    first.save(tmp_path / "learner.safetensors")
    second = Learner.load(tmp_path / "learner.safetensors")
    assert_same_state(second.state_dict(), first.state_dict())
    feed(second, samples, start=45)
    assert_same_state(second.state_dict(), whole.state_dict())
    assert torch.equal(second.logits(questions), whole.logits(questions))


def test_purity(lawful, whole, samples, questions):
    asked = new_learner(lawful)
    for at in range(SAMPLES):
        feed(asked, samples, at, at + 1)
        if at % 7 == 6:
            asked.method.readout.prepare()
            first = asked.logits(questions)
            assert torch.equal(first, asked.logits(questions))
            asked.predict(questions[:3])
    assert_same_state(asked.state_dict(), whole.state_dict())


def test_spec(lawful, whole, samples):
    again = Method.from_json(json.loads(json.dumps(lawful.to_json())))
    assert again == lawful
    other = new_learner(again)
    feed(other, samples)
    assert_same_state(other.state_dict(), whole.state_dict())


def test_clone_and_addresses(lawful, samples):
    """Learners of one method share nothing; and everything of a learner stays where it is."""
    learner, other = new_learner(lawful), new_learner(lawful)
    assert not storages(learner) & storages(other)
    untouched = copy.deepcopy(other.state_dict())
    feed(learner, samples, stop=2)
    while lawful.pace.updates_per_sample and not learner.context.updates:
        learner.observe(*samples[0])  # the optimizer makes its state at the first step
    before = addresses(learner)
    feed(learner, samples, start=2)
    assert len(learner.labels) == 5
    after = addresses(learner)
    assert {path: after[path] for path in before} == before
    assert_same_state(other.state_dict(), untouched)
    for _, part in lawful.parts():
        assert "context" not in vars(part)  # the description was not put to work itself


def test_no_hidden_sync(lawful, samples, questions):
    calls = {"step": 0, "store": 0, "refit": 0}

    class Watching(Eager):
        def compile(self, step, graph_key=lambda: None, meter=None):
            def watched(*args):
                calls["step"] += step.__name__ == "_on_device"
                with NoSync():
                    return step(*args)

            return watched

    learner = new_learner(lawful, engine=Watching())
    store = learner._store

    def watched_store(one):
        calls["store"] += 1
        with NoSync():
            store(one)

    learner._store = watched_store
    learner.on_refit = lambda done, total: calls.update(refit=calls["refit"] + 1)
    feed(learner, samples)
    learner.predict(questions)
    assert calls["step"] == learner.context.updates + calls["refit"]
    assert (calls["step"] > 0) == (not lawful.readout.learns)
    assert (calls["refit"] > 0) == (lawful.refit is not None)
    assert calls["store"] > BUDGET  # also into a full memory


def test_what_a_step_returns_is_good_until_the_next(lawful, samples, questions):
    """Captured steps share their room: where the results of one lie, another may write."""
    returned, steps = [], []

    class OneRoom(Eager):
        def compile(self, step, graph_key=lambda: None, meter=None):
            def sharing(*args):
                steps.append(step)
                args = tree_map_only(torch.Tensor, torch.clone, args)  # into the places of a capture, before it runs
                while returned:
                    returned.pop().fill_(-1)
                result = tree_map_only(torch.Tensor, torch.clone, step(*args))
                returned.extend(leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
                return result

            return sharing

    shared, apart = new_learner(lawful, engine=OneRoom()), new_learner(lawful)
    for start, stop in itertools.pairwise([0, *TASK_ENDS, SAMPLES]):  # what refits write then is in the room, too
        for learner in (shared, apart):
            feed(learner, samples, start, stop)
        assert_same_state(shared.state_dict(), apart.state_dict())
        assert torch.equal(shared.logits(questions), apart.logits(questions))
        assert torch.equal(shared.trainer.loss, apart.trainer.loss)
    assert len(steps) > SAMPLES / 8 or lawful.readout.learns


def test_nothing_depends_on_when_numbers_arrive(lawful, whole, samples, monkeypatch):
    """Rows drawn one update at a time and values read as late as can be: the course of a device that is far behind."""
    late = new_learner(lawful)
    monkeypatch.setattr("iblurry.learner.trainer.BLOCK", 1)
    monkeypatch.setattr("iblurry.engine.eager.AsyncRead.ready", lambda self: False)
    feed(late, samples)
    assert_same_state(late.state_dict(), whole.state_dict())


def test_budget(lawful, samples):
    learner = new_learner(lawful)
    if lawful.admission.keeps_all:
        assert lawful.name == "joint"  # the bound that knows no budget; nobody else may
        return
    most = 0
    uncounted = (
        lawful.pace.stream_batch - lawful.pace.samples_outside_memory if lawful.pace.count_waiting == "half" else 0
    )
    assert uncounted == 0 or lawful.name == "rm-released"  # whose own programme counts half of what waits
    for image, label in samples:
        learner.observe(image, label)
        waiting = len(learner.stream_batch) if lawful.pace.store_when == "after" else 0
        most = max(most, learner.context.memory.size + waiting)
        assert learner.context.memory.capacity + lawful.samples_outside_memory(BUDGET) <= BUDGET
        assert most <= BUDGET + uncounted
        rows = learner.context.memory.written_at[:-1]
        assert int((rows > 0).sum()) == learner.context.memory.size
    if lawful.admission.keeps_none:
        assert most == learner.context.memory.capacity == 0
        return
    assert most > BUDGET - max(1, lawful.samples_outside_memory(BUDGET))  # the budget is used, too


def test_seeds_matter(lawful, whole, samples):
    other = new_learner(lawful, seed=2)
    feed(other, samples)
    assert not torch.equal(whole.context.network.head.weight, other.context.network.head.weight)


@pytest.mark.slow
def test_it_learns(lawful, samples, questions):
    """After many passes over its own stream, answers about it are far better than chance (20 %)."""
    learner = new_learner(lawful, memory=40, network="mlp")
    for _ in range(8):
        feed(learner, samples)
    images = torch.stack([torch.as_tensor(image) for image, _ in samples])
    right = sum(p == label for p, (_, label) in zip(learner.predict(images), samples, strict=True))
    assert right / len(samples) > 0.5


def storages(learner):
    return {
        v.untyped_storage().data_ptr()
        for _, v in leaves(learner.state_dict())
        if isinstance(v, torch.Tensor) and v.numel()
    }


def addresses(learner):
    kept = {name: value for name, value in learner.state_dict().items() if name != "stream batch"}
    return {path: v.data_ptr() for path, v in leaves(kept) if isinstance(v, torch.Tensor)}
