"""Refits: what a plain loop over the memory learns, by trainers that are kept, left and taken up anywhere."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from iblurry.augment.pipeline import Augment
from iblurry.engine.eager import Eager
from iblurry.engine.optimizer import Adam
from iblurry.engine.optimizer_state import state_of
from iblurry.errors import DivergedError, InputError
from iblurry.learner.learner import Learner
from iblurry.learner.refits import Refitter
from iblurry.methods import METHODS, Hyperparameters, gdumb, joint, method, rm
from iblurry.network.build import build, open_row
from iblurry.parts import Cosine, CrossEntropy, Exponential, MultiStep, Refit, Term
from iblurry.parts.part import scratch, state
from iblurry.rng import Rng
from iblurry.storage import checkpoint
from tests.laws.lawful import assert_same_state, new_learner

HYPERPARAMETERS = Hyperparameters(batch=8, epochs=5)
SHORT = Hyperparameters(batch=8, epochs=3)
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


REFITTED = {
    "gdumb": gdumb(SHORT),
    "rm": rm(SHORT),
    "joint": joint(SHORT),
    "rm-released": method("rm-released", SHORT),
    "gdumb with adam": changed(gdumb(SHORT), optimizer=Adam(), schedule=Exponential(gamma=0.9)),
    "rm with steps": changed(rm(SHORT), schedule=MultiStep(milestones=(1, 2))),
    "gdumb with a part of one's own": changed(gdumb(SHORT), terms=(CrossEntropy(), Weary())),
    "rm with a part of one's own": changed(rm(SHORT), terms=(CrossEntropy(), Weary())),
}


def fed(chosen, samples, stop=40, **options):
    learner = new_learner(chosen, **options)
    for image, label in samples[:stop]:
        learner.observe(image, label)
    return learner


def answered(learner, questions):
    """Both ways to start a refit: the end of a task and a query."""
    learner.end_task()
    return learner.logits(questions)


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


class LeaveError(Exception):
    """Someone left in the middle of a refit."""


def leave_after(learner, updates):
    def leave(done, total):
        if done == updates:
            raise LeaveError

    learner.on_refit = leave


# ------------------------------------------------------------------------------------------------ what is learnt


def test_what_is_learnt_is_what_a_plain_loop_learns(samples, questions):
    """GDumb's refit against ten lines of PyTorch; without crops, mirrors and mixing there is nothing else to it."""
    learner = fed(gdumb(HYPERPARAMETERS), samples, augment=Augment(pad=0, flip=False, cutmix=0.0), network="mlp")
    asked = learner.logits(questions)
    rng = Rng(1).fork("refit at 40")
    plain = build("mlp", (1, 8, 8), 6, rng=rng)
    for label in learner.labels:
        open_row(plain, label, rng)
    rows, memory = learner.context.memory.size, learner.context.memory
    optimizer = torch.optim.SGD(plain.parameters(), 0.005, momentum=0.9, weight_decay=1e-4, nesterov=True)
    for epoch, rate in enumerate([0.005, 0.05, 0.05, 0.025, 0.05]):  # golden `sgdr`
        optimizer.param_groups[0]["lr"] = rate
        for batch in np.array_split(rng.permutation("rehearsal draws", epoch, rows), range(8, rows, 8)):
            images = learner.context.pipeline.test(memory.images[batch])
            optimizer.zero_grad()
            F.cross_entropy(plain.train()(images), memory.labels[batch]).backward()
            optimizer.step()
    answers = plain.eval()(learner.context.pipeline.test(torch.from_numpy(questions)))
    torch.testing.assert_close(asked, answers, rtol=1e-4, atol=1e-5)


def test_each_query_starts_from_other_weights_and_the_same_query_from_the_same(samples, questions):
    learner = fed(gdumb(HYPERPARAMETERS), samples)
    first, again = learner.logits(questions), fed(gdumb(HYPERPARAMETERS), samples).logits(questions)
    assert torch.equal(first, again)
    learner.context.counters.seen += 1  # the same memory, one sample later
    learner.method.readout.offered = -1
    assert not torch.equal(first, learner.logits(questions))


def test_rm_starts_its_optimizer_again_with_a_class_and_with_a_task(samples):
    learner = fed(rm(Hyperparameters(batch=4, epochs=1)), samples, stop=12)
    momenta = [state["momentum_buffer"] for state in learner.trainer.optimizer.state.values()]
    assert all(m.any() for m in momenta[:2])
    assert len(learner.labels) == 2
    learner.observe(*samples[12])  # the third class, first of a batch
    assert len(learner.labels) == 3
    assert not any(m.any() for m in momenta)
    for image, label in samples[13:16]:
        learner.observe(image, label)
    assert all(m.any() for m in momenta[:2])
    learner.end_task()
    assert not any(m.any() for m in momenta)


@pytest.mark.parametrize("frozen", [False, True])
def test_batch_norm_moves_in_a_refit_unless_frozen(frozen, samples):
    chosen = method("rm-released" if frozen else "rm", HYPERPARAMETERS)
    assert chosen.readout == Refit(at="boundary", epochs=5, frozen_norm=frozen)
    learner = fed(chosen, samples)
    before = {n: b.clone() for n, b in learner.context.network.named_buffers() if "running" in n}
    weights = learner.context.network.head.weight.clone()
    learner.end_task()
    after = dict(learner.context.network.named_buffers())
    assert before
    assert all(torch.equal(before[name], after[name]) == frozen for name in before)
    assert not torch.equal(weights, learner.context.network.head.weight)  # it did learn


def test_joint_keeps_everything(samples):
    learner = fed(joint(HYPERPARAMETERS), samples, stop=60)
    assert learner.context.memory.size == 60
    pixels = torch.from_numpy(np.stack([image for image, _ in samples]))
    assert torch.equal(learner.context.memory.images[:60], pixels)
    small = Learner(joint(HYPERPARAMETERS), image=(1, 8, 8), classes=6, memory=24)
    for image, label in samples[:24]:
        small.observe(image, label)
    with pytest.raises(InputError, match="all 24 rows of the memory are taken"):
        small.observe(*samples[24])


@pytest.mark.parametrize("name", [name for name in METHODS if "-" not in name])
def test_a_stream_without_boundaries_refuses_who_needs_them_and_takes_everyone_else(name):
    chosen = method(name, HYPERPARAMETERS)
    assert chosen.task_free == (name not in ("ewc", "bic", "rm"))
    if chosen.task_free:
        new_learner(chosen, boundaries=False)
    else:
        with pytest.raises(InputError, match=name):
            new_learner(chosen, boundaries=False)


def test_a_refit_that_breaks_says_so(samples, questions):
    wild = dataclasses.replace(gdumb(HYPERPARAMETERS).refit, schedule=Cosine(initial_lr=1e6))
    learner = fed(gdumb(HYPERPARAMETERS, refit=wild), samples)
    learner.on_refit = lambda done, total: learner.check()
    with pytest.raises(DivergedError, match=r"sample 40.*refit\.schedule\.initial_lr"):
        learner.predict(questions)


@pytest.mark.parametrize("name", ["rm", "rm-released"])
def test_a_task_that_ends_before_anything_is_stored(name, samples, questions):
    short, plain = new_learner(REFITTED[name]), new_learner(REFITTED[name])
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
    pace = dataclasses.replace(REFITTED["gdumb"].pace, stream_batch=8, store_when="after")
    learner = new_learner(dataclasses.replace(REFITTED["gdumb"], pace=pace))
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

    learner = new_learner(REFITTED[name], engine=Recording())
    for image, label in samples[:10]:
        learner.observe(image, label)
    learner.logits(samples[0][0][None])
    assert expected == [8]


# ----------------------------------------------------------------------------------------------- trainers that are kept


def anew(learner):
    """As if no refit had ever been."""
    old = learner.refitter
    fresh = Refitter(old.training, old.online, on_progress=old.on_progress, on_changed=old.on_changed)
    vars(old).update(vars(fresh))


@pytest.mark.quick("rm", "gdumb with a part of one's own")
@pytest.mark.parametrize("name", REFITTED)
def test_a_kept_trainer_learns_what_a_new_one_does(name, samples, questions):
    kept, new = new_learner(REFITTED[name]), new_learner(REFITTED[name])
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
    refits(new_learner(REFITTED[name], engine=engine, network="mlp"), samples, questions)
    assert engine.steps == 2  # the stream's and the refits'


def test_refits_of_another_kind_have_a_trainer_of_their_own(samples):
    engine = Counting()
    learner = new_learner(REFITTED["rm"], engine=engine, network="mlp")
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
@pytest.mark.parametrize("name", REFITTED)
def test_what_a_step_refers_to_stays_where_it_is(name, samples, questions):
    learner = new_learner(REFITTED[name], network="mlp")
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
    learner.context.refit(epochs=1, fresh=not REFITTED[name].readout.needs_boundaries, frozen_norm="released" in name)
    assert len(seen[0]) > 10
    assert all(one == seen[0] for one in seen)


def addresses(value):
    if isinstance(value, Tensor):
        return [value.data_ptr()]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [address for one in inside for address in addresses(one)]


# ------------------------------------------------------------------------------------------------ left and taken up


def left_after(learner, samples, questions, updates):
    """Two refits done and the third, at sample 29, left."""
    refits(learner, samples, questions, stops=STOPS[:2])
    for image, label in samples[STOPS[1] : STOPS[2]]:
        learner.observe(image, label)
    leave_after(learner, updates)
    with pytest.raises(LeaveError):
        answered(learner, questions)
    learner.on_refit = lambda done, total: None
    return learner


LAST = {"gdumb": 9, "rm": 6, "rm-released": 9, "joint": 12, "rm with a part of one's own": 6}
LEFT = [(name, updates) for name in LAST for updates in (1, 4, LAST[name])]  # in an epoch, in a later one, at the end


@pytest.mark.quick("rm-1", "gdumb-9", "joint-4")
@pytest.mark.parametrize("name, updates", [*LEFT, ("gdumb with adam", 4)])
def test_resume_inside_a_refit(name, updates, samples, questions, tmp_path):
    """In a new learner, in the same one, and in one that has had other refits since."""
    whole = new_learner(REFITTED[name])
    expected = refits(whole, samples, questions)[-1]
    left = left_after(new_learner(REFITTED[name]), samples, questions, updates)
    checkpoint.save(tmp_path, left.state_dict(), at=29)
    saved = checkpoint.load_latest(tmp_path).state
    new, used = new_learner(REFITTED[name]), new_learner(REFITTED[name])
    refits(used, samples, questions)
    for learner in (new, used, left):
        if learner is not left:
            learner.load_state_dict(copy.deepcopy(saved))
        assert_same_state(learner.state_dict(), saved)
        told = []
        learner.on_refit = lambda done, total: told.append(done)  # noqa: B023 - called in this round only
        learner.method.readout.finish_pending()
        learner.logits(questions)
        assert told == list(range(updates + 1, LAST.get(name, 9) + 1))  # nothing was done twice
        assert torch.equal(refits(learner, samples, questions, start=29, stops=STOPS[3:])[-1], expected)
        assert learner.state_dict()["counters"]["seen"] == whole.context.seen
        assert_same_state(dict(learner.context.network.state_dict()), dict(whole.context.network.state_dict()))


def test_a_refit_at_a_boundary_is_finished_before_the_next_sample(samples, questions):
    whole, left = fed(rm(HYPERPARAMETERS), samples), fed(rm(HYPERPARAMETERS), samples)
    whole.end_task()
    leave_after(left, 4)
    with pytest.raises(LeaveError):
        left.end_task()
    left.on_refit = lambda done, total: None
    for learner in (whole, left):
        learner.observe(*samples[40])
    assert_same_state(left.state_dict(), whole.state_dict())


def test_a_refit_given_up_leaves_nothing_behind(samples, questions):
    left, whole = left_after(new_learner(REFITTED["gdumb"]), samples, questions, 4), new_learner(REFITTED["gdumb"])
    refits(whole, samples, questions, stops=STOPS[:2])
    for learner, start in ((left, 29), (whole, 18)):
        for image, label in samples[start:40]:
            learner.observe(image, label)
    assert torch.equal(left.logits(questions), whole.logits(questions))


def test_the_same_memory_is_not_trained_on_twice(samples, questions):
    learner = fed(gdumb(HYPERPARAMETERS), samples)
    told = []
    learner.on_refit = lambda done, total: told.append((done, total))
    learner.predict(questions)
    learner.end_task()
    learner.predict(questions)
    assert told == [(done, 15) for done in range(1, 16)]  # five epochs of three batches
    learner.observe(*samples[40])
    learner.predict(questions)
    assert len(told) == 30
