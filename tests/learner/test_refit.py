"""Refits: what they learn is what a plain loop over the memory learns, and they can be left and taken up anywhere."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from iblurry.augment.pipeline import Augment
from iblurry.errors import DivergedError, InputError
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, er, gdumb, joint, method, rm
from iblurry.parts import Balanced, Cosine, Importance, Refit
from iblurry.rng import Rng
from iblurry.storage import checkpoint
from tests.laws.lawful import assert_same_state, new_learner

HYPERPARAMETERS = Hyperparameters(batch=8, epochs=5)
REFITS = {name: method(name, HYPERPARAMETERS) for name in ("gdumb", "rm", "joint", "rm-released")}
LAST = {"gdumb": 15, "rm": 10, "joint": 25, "rm-released": 15}  # updates of five epochs over 24, 16, 40, 20 rows


def fed(chosen, samples, stop=40, **options):
    learner = new_learner(chosen, **options)
    for image, label in samples[:stop]:
        learner.observe(image, label)
    return learner


def answered(learner, questions):
    """Both ways to start a refit: the end of a task and a query."""
    learner.end_task()
    return learner.logits(questions)


class LeaveError(Exception):
    """Someone left in the middle of a refit."""


def leave_after(learner, updates):
    def leave(done, total):
        if done == updates:
            raise LeaveError

    learner.on_refit = leave


@pytest.mark.quick("1-gdumb", "1-joint", "None-rm", "None-rm-released")
@pytest.mark.parametrize("name", REFITS)
@pytest.mark.parametrize("updates", [1, 3, 8, None])  # in an epoch, at its end, later, the end
def test_resume_inside_a_refit(name, updates, samples, questions, tmp_path):
    updates = updates or LAST[name]
    whole = fed(REFITS[name], samples)
    expected = answered(whole, questions)
    first = fed(REFITS[name], samples)
    leave_after(first, updates)
    with pytest.raises(LeaveError):
        answered(first, questions)
    checkpoint.save(tmp_path, first.state_dict(), at=40)
    second = new_learner(REFITS[name])
    second.load_state_dict(checkpoint.load_latest(tmp_path).state)
    assert second.state_dict()["refit"]["updates"] == updates
    assert_same_state(second.state_dict(), first.state_dict())
    told = []
    second.on_refit = lambda done, total: told.append(done)
    assert torch.equal(second.logits(questions), expected)
    assert told == list(range(updates + 1, updates + 1 + len(told)))  # nothing was done twice
    assert_same_state(second.state_dict(), whole.state_dict())
    for learner in (whole, second):
        for image, label in samples[40:]:
            learner.observe(image, label)
    assert_same_state(second.state_dict(), whole.state_dict())


def test_a_refit_at_a_boundary_is_finished_before_the_next_sample(samples, questions):
    whole, left = fed(REFITS["rm"], samples), fed(REFITS["rm"], samples)
    whole.end_task()
    leave_after(left, 4)
    with pytest.raises(LeaveError):
        left.end_task()
    left.on_refit = lambda done, total: None
    for learner in (whole, left):
        learner.observe(*samples[40])
    assert_same_state(left.state_dict(), whole.state_dict())


def test_a_refit_for_a_query_is_given_up_when_the_stream_goes_on(samples, questions):
    quiet, left = fed(REFITS["gdumb"], samples), fed(REFITS["gdumb"], samples)
    leave_after(left, 4)
    with pytest.raises(LeaveError):
        left.predict(questions)
    assert left.state_dict()["refit"] is not None
    left.on_refit = lambda done, total: None
    for learner in (quiet, left):
        learner.observe(*samples[40])
    assert_same_state(left.state_dict(), quiet.state_dict())
    assert torch.equal(left.logits(questions), quiet.logits(questions))


def test_what_is_learnt_is_what_a_plain_loop_learns(samples, questions):
    """GDumb's refit against ten lines of PyTorch; without crops, mirrors and mixing there is nothing else to it."""
    learner = fed(REFITS["gdumb"], samples, augment=Augment(pad=0, flip=False, cutmix=0.0), network="mlp")
    asked = learner.logits(questions)
    rng = Rng(1).fork("refit at 40")
    plain = _fresh(learner, rng)
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


def _fresh(learner, rng):
    from iblurry.network.build import build, open_row

    network = build("mlp", (1, 8, 8), 6, rng=rng)
    for label in learner.labels:
        open_row(network, label, rng)
    return network


def test_each_query_starts_from_other_weights_and_the_same_query_from_the_same(samples, questions):
    learner = fed(REFITS["gdumb"], samples)
    first, again = learner.logits(questions), fed(REFITS["gdumb"], samples).logits(questions)
    assert torch.equal(first, again)
    learner.context.counters.seen += 1  # the same memory, one sample later
    learner.method.readout.offered = -1
    assert not torch.equal(first, learner.logits(questions))


def test_the_same_memory_is_not_trained_on_twice(samples, questions):
    learner = fed(REFITS["gdumb"], samples)
    told = []
    learner.on_refit = lambda done, total: told.append((done, total))
    learner.predict(questions)
    learner.end_task()
    learner.predict(questions)
    assert told == [(done, 15) for done in range(1, 16)]  # five epochs of three batches
    learner.observe(*samples[40])
    learner.predict(questions)
    assert len(told) == 30


def test_gdumb_learns_nothing_from_the_stream(samples, questions):
    learner = new_learner(REFITS["gdumb"])
    start = copy.deepcopy(dict(learner.context.network.body.state_dict()))
    for image, label in samples:
        learner.observe(image, label)
    learner.predict(questions)
    assert learner.context.updates == 0
    assert_same_state(dict(learner.context.network.body.state_dict()), start)


def test_rm_draws_the_whole_head_again(samples):
    learner = fed(REFITS["rm"], samples, stop=7)
    assert len(learner.labels) == 1
    weight, bias = learner.context.network.head.weight.clone(), learner.context.network.head.bias.clone()
    learner.observe(*samples[7])  # the second class; its batch is full with it, so look before the step
    assert len(learner.labels) == 2
    other = fed(er(HYPERPARAMETERS), samples, stop=7)
    kept = other.context.network.head.weight[0].clone()
    other.observe(*samples[7])
    bound = 1 / np.sqrt(learner.context.network.features)
    assert not torch.equal(learner.context.network.head.weight[0], weight[0])
    assert not torch.equal(learner.context.network.head.bias[:1], bias[:1])
    assert learner.context.network.head.weight.abs().max() <= bound + 0.05 * 10  # one step at 0.05 at most
    assert (other.context.network.head.weight[0] - kept).abs().max() < 0.1 * bound  # ER's old row only took its steps


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


def test_budgets():
    assert rm().capacity(500) == 484  # all sixteen that wait count
    assert method("rm-released").capacity(500) == 492
    assert gdumb().capacity(500) == 500
    assert method("er-released").capacity(500) == 492
    assert method("agem-released").capacity(500) == 492
    assert rm().pace.updates_per_sample * 16 == 1


def test_the_memories_of_clib_gdumb_and_rm_hold_the_same_classes(samples):
    counts = []
    for admission in (Balanced(), Importance()):
        learner = fed(gdumb(HYPERPARAMETERS, admission=admission), samples, stop=60)
        counts.append(learner.context.memory.labels[:-1].bincount().tolist())
    assert counts[0] == counts[1]


def test_joint_keeps_everything(samples):
    learner = fed(REFITS["joint"], samples, stop=60)
    assert learner.context.memory.size == 60
    pixels = torch.from_numpy(np.stack([image for image, _ in samples]))
    assert torch.equal(learner.context.memory.images[:60], pixels)
    small = Learner(joint(HYPERPARAMETERS), image=(1, 8, 8), classes=6, memory=24)
    for image, label in samples[:24]:
        small.observe(image, label)
    with pytest.raises(InputError, match="all 24 rows of the memory are taken"):
        small.observe(*samples[24])


@pytest.mark.parametrize("name", ["ewc", "bic", "rm"])
def test_a_stream_without_boundaries_refuses_who_needs_them(name):
    with pytest.raises(InputError, match=f"{name} needs the ends of tasks .*two or more tasks"):
        new_learner(method(name, HYPERPARAMETERS), boundaries=False)


@pytest.mark.parametrize("name", ["er", "clib", "mir", "agem", "gss", "gdumb", "joint"])
def test_a_stream_without_boundaries_takes_everyone_else(name):
    assert method(name).task_free
    new_learner(method(name, HYPERPARAMETERS), boundaries=False)


def test_a_refit_that_breaks_says_so(samples, questions):
    wild = dataclasses.replace(REFITS["gdumb"].refit, schedule=Cosine(initial_lr=1e6))
    learner = fed(gdumb(HYPERPARAMETERS, refit=wild), samples)
    learner.on_refit = lambda done, total: learner.check()
    with pytest.raises(DivergedError, match=r"updates of a refit, at sample 40; .*refit\.schedule\.initial_lr"):
        learner.predict(questions)
