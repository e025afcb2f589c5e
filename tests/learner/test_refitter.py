"""The refitter's trainers: kept from refit to refit, and nobody can tell them from new ones."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import Tensor

from iblurry.engine.eager import Eager
from iblurry.engine.optimizer import Adam
from iblurry.engine.optimizer_state import state_of
from iblurry.learner.refitter import Refitter
from iblurry.methods import Hyperparameters, gdumb, joint, method, rm
from iblurry.parts import CrossEntropy, Exponential, MultiStep, Term
from iblurry.parts.part import scratch, state
from iblurry.storage import checkpoint
from tests.laws.lawful import assert_same_state, new_learner

HYPERPARAMETERS = Hyperparameters(batch=8, epochs=3)
STOPS = (10, 18, 29, 46, 60)  # the classes met are 2, 3, 3, 5, 5; the memory grows to its 24 rows, or goes on growing


class Weary(Term):
    """Pulls the head towards 0, the more the longer a refit lasts; all of it in tensors of its own."""

    updates: Tensor = state(lambda part: torch.zeros(1))
    by_name: dict[str, Tensor] = state(lambda part: {"pull": torch.zeros(1)})
    seen: int = state(lambda part: part.context.seen)
    unit: Tensor = scratch(lambda part: torch.full((1,), 0.001 * part.context.seen))

    def loss(self, forward):
        return (self.by_name["pull"] * self.context.network.head.weight.square().sum()).sum()

    def on_update(self, update):
        self.updates += 1
        self.by_name["pull"].copy_(self.updates * self.unit)


def changed(made, **parts):
    return dataclasses.replace(made, refit=dataclasses.replace(made.refit, **parts))


METHODS = {
    "gdumb": gdumb(HYPERPARAMETERS),
    "rm": rm(HYPERPARAMETERS),
    "joint": joint(HYPERPARAMETERS),
    "rm-released": method("rm-released", HYPERPARAMETERS),
    "gdumb with adam": changed(gdumb(HYPERPARAMETERS), optimizer=Adam(), schedule=Exponential(gamma=0.9)),
    "rm with steps": changed(rm(HYPERPARAMETERS), schedule=MultiStep(milestones=(1, 2))),
    "gdumb with a part of one's own": changed(gdumb(HYPERPARAMETERS), terms=(CrossEntropy(), Weary())),
    "rm with a part of one's own": changed(rm(HYPERPARAMETERS), terms=(CrossEntropy(), Weary())),
}


def anew(learner):
    """As if no refit had ever been."""
    old = learner.refitter
    fresh = Refitter(old.training, old.online, on_progress=old.on_progress, on_changed=old.on_changed)
    vars(old).update(vars(fresh))


def refits(learner, samples, questions, start=0, stops=STOPS, before=lambda learner: None):
    """Feeds the stream with a refit at each stop; everything that these showed on the way."""
    shown = []

    def look(done, total):
        shown.append((done, total, copy.deepcopy(learner.refitter.state_dict())))

    for stop in stops:
        for image, label in samples[start:stop]:
            learner.observe(image, label)
        before(learner)
        learner.on_refit = look
        shown.append(answered(learner, questions))
        start = stop
    return shown


def answered(learner, questions):
    """Both ways to start a refit: the end of a task and a query."""
    learner.end_task()
    return learner.logits(questions)


@pytest.mark.quick("rm", "gdumb with a part of one's own")
@pytest.mark.parametrize("name", METHODS)
def test_a_kept_trainer_learns_what_a_new_one_does(name, samples, questions):
    kept, new = new_learner(METHODS[name]), new_learner(METHODS[name])
    one, other = refits(kept, samples, questions), refits(new, samples, questions, before=anew)
    assert len(one) >= len(STOPS) * (1 + 3) + 3 * 4  # an answer each and three epochs, mostly of several updates
    assert_same_state(one, other)
    assert_same_state(kept.state_dict(), new.state_dict())


class Counting(Eager):
    """Counts the steps that are prepared."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def compile(self, step, graph_key=lambda: None, meter=None):
        self.steps += step.__name__ == "_on_device"
        return step


@pytest.mark.parametrize("name", ["gdumb", "rm", "joint"])
def test_a_step_is_prepared_once(name, samples, questions):
    engine = Counting()
    refits(new_learner(METHODS[name], engine=engine, network="mlp"), samples, questions)
    assert engine.steps == 2  # the stream's and the refits'


def test_refits_of_another_kind_have_a_trainer_of_their_own(samples):
    engine = Counting()
    learner = new_learner(METHODS["rm"], engine=engine, network="mlp")
    for image, label in samples[:24]:
        learner.observe(image, label)
    kinds = [(fresh, frozen) for fresh in (True, False) for frozen in (True, False)]
    benches = []
    for kind in 2 * kinds:
        learner.context.counters.seen += 1  # another moment of the stream
        benches.append(learner.context.refit(epochs=1, fresh=kind[0], frozen_norm=kind[1]))
    assert engine.steps == 1 + len(kinds)
    assert [id(b) for b in benches[:4]] == [id(b) for b in benches[4:]]
    assert [b.network is learner.context.network for b in benches] == [not fresh for fresh, _ in 2 * kinds]


@pytest.mark.quick("rm", "gdumb with a part of one's own")
@pytest.mark.parametrize("name", METHODS)
def test_what_a_step_refers_to_stays_where_it_is(name, samples, questions):
    learner = new_learner(METHODS[name], network="mlp")
    seen = []

    def look(done, total):
        trainer = learner.refitter.trainer
        own = [part.state_dict() | {"unit": getattr(part, "unit", None)} for part in trainer.parts.values()]
        network = dict(trainer.context.network.state_dict())
        seen.append(addresses([state_of(trainer.optimizer), own, network]))

    start = 0
    for stop in STOPS:
        for image, label in samples[start:stop]:
            learner.observe(image, label)
        learner.on_refit = look
        answered(learner, questions)
        start = stop
    learner.load_state_dict(copy.deepcopy(learner.state_dict()))
    learner.context.refit(epochs=1, fresh=not METHODS[name].readout.needs_boundaries, frozen_norm="released" in name)
    assert len(seen[0]) > 10
    assert all(one == seen[0] for one in seen)


def addresses(value):
    if isinstance(value, Tensor):
        return [value.data_ptr()]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [address for one in inside for address in addresses(one)]


def test_the_context_of_a_refit_follows_the_learners(samples, questions):
    learner = new_learner(METHODS["gdumb"])
    refits(learner, samples, questions, stops=STOPS[:2])
    learner.context.counters.seen += 1
    context = learner.context.refit(epochs=0, fresh=True, frozen_norm=False)
    own = {"network", "rng", "counters", "refit", "spent", "shared"}
    for field in dataclasses.fields(context):
        assert (getattr(context, field.name) is getattr(learner.context, field.name)) == (field.name not in own)
    assert (context.seen, context.tasks) == (learner.context.seen, learner.context.tasks)
    assert (context.updates, context.refit, context.rng.scope) == (0, None, "refit at 19: ")
    assert context.network.labels == learner.labels


class LeaveError(Exception):
    """Someone left in the middle of a refit."""


def left_after(learner, samples, questions, updates):
    """Two refits done and the third, at sample 29, left."""
    refits(learner, samples, questions, stops=STOPS[:2])
    for image, label in samples[STOPS[1] : STOPS[2]]:
        learner.observe(image, label)

    def leave(done, total):
        if done == updates:
            raise LeaveError

    learner.on_refit = leave
    with pytest.raises(LeaveError):
        answered(learner, questions)
    learner.on_refit = lambda done, total: None
    return learner


RESUMED = [("gdumb", 1), ("gdumb with adam", 4), ("rm", 1), ("rm-released", 4), ("joint", 4)]


@pytest.mark.quick("rm-1")
@pytest.mark.parametrize("name, updates", [*RESUMED, ("rm with a part of one's own", 4)])
def test_resume_inside_a_later_refit(name, updates, samples, questions, tmp_path):
    """In a new learner, in the same one, and in one that has had other refits since."""
    whole = new_learner(METHODS[name])
    expected = refits(whole, samples, questions)[-1]
    left = left_after(new_learner(METHODS[name]), samples, questions, updates)
    checkpoint.save(tmp_path, left.state_dict(), at=29)
    saved = checkpoint.load_latest(tmp_path).state
    new, used = new_learner(METHODS[name]), new_learner(METHODS[name])
    refits(used, samples, questions)
    for learner in (new, used, left):
        if learner is not left:
            learner.load_state_dict(copy.deepcopy(saved))
        assert_same_state(learner.state_dict(), saved)
        told = []
        learner.on_refit = lambda done, total: told.append(done)  # noqa: B023 - called in this round only
        learner.method.readout.finish_pending()
        learner.logits(questions)
        assert told[0] == updates + 1
        assert torch.equal(refits(learner, samples, questions, start=29, stops=STOPS[3:])[-1], expected)
        assert learner.state_dict()["counters"]["seen"] == whole.context.seen
        assert_same_state(dict(learner.context.network.state_dict()), dict(whole.context.network.state_dict()))


def test_a_refit_given_up_leaves_nothing_behind(samples, questions):
    left, whole = left_after(new_learner(METHODS["gdumb"]), samples, questions, 4), new_learner(METHODS["gdumb"])
    refits(whole, samples, questions, stops=STOPS[:2])
    for learner, start in ((left, 29), (whole, 18)):
        for image, label in samples[start:40]:
            learner.observe(image, label)
    assert torch.equal(left.logits(questions), whole.logits(questions))


@pytest.mark.parametrize("name", ["rm", "rm-released"])
def test_a_task_that_ends_before_anything_is_stored(name, samples, questions):
    short, plain = new_learner(METHODS[name]), new_learner(METHODS[name])
    for image, label in samples[:3]:
        short.observe(image, label)
        plain.observe(image, label)
    told = []
    short.on_refit = lambda done, total: told.append(done)
    short.end_task()
    assert short.context.memory.size == 0
    assert told == []
    assert short.state_dict()["refit"] is None
    assert_same_state(dict(short.context.network.state_dict()), dict(plain.context.network.state_dict()))
    assert torch.equal(short.logits(questions), plain.logits(questions))
    plain.context.counters.tasks += 1
    one, other = (refits(learner, samples, questions, start=3) for learner in (short, plain))
    assert_same_state(one, other)
    assert_same_state(short.state_dict(), plain.state_dict())


def test_a_fresh_network_that_finds_nothing_stored_answers_as_it_was_drawn(samples, questions):
    pace = dataclasses.replace(METHODS["gdumb"].pace, stream_batch=8, store_when="after")
    learner = new_learner(dataclasses.replace(METHODS["gdumb"], pace=pace))
    for image, label in samples[:7]:
        learner.observe(image, label)
    assert learner.predict(questions[:1]) == [samples[0][1]]  # the only class met
    first = learner.logits(questions)
    assert torch.equal(first, learner.logits(questions))
    learner.observe(*samples[7])
    assert learner.context.memory.size == 8
    assert not torch.equal(first, learner.logits(questions))


@pytest.mark.parametrize("name", ["gdumb", "joint"])
def test_an_engine_expects_no_batches_of_nothing(name, samples):
    """What only refits trains on nothing between refits, for which kernels cannot be compiled."""
    expected = []

    class Recording(Eager):
        def expect_batch_size(self, network, pipeline, size):
            expected.append(size)

    learner = new_learner(METHODS[name], engine=Recording())
    for image, label in samples[:10]:
        learner.observe(image, label)
    learner.logits(samples[0][0][None])
    assert expected == [8]
