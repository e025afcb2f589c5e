"""What a new class does to the head and to its optimizer, in either profile."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from iblurry.augment.pipeline import Augment
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, method
from iblurry.methods.method import Head
from iblurry.parts import Constant

RNG = np.random.default_rng(3)
HYPERPARAMETERS = Hyperparameters(batch=8)


def picture(shape=(1, 8, 8)):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def trained(chosen, samples, hyperparameters=HYPERPARAMETERS, network="convnet"):
    """Two classes in turn."""
    if isinstance(chosen, str):
        chosen = method(chosen, hyperparameters)
    learner = Learner(chosen, image=(1, 8, 8), classes=6, memory=40, network=network, augment=Augment(pad=1))
    for i in range(samples):
        learner.observe(picture(), i % 2)
    return learner


def head(learner):
    return {name: p.detach().clone() for name, p in learner.context.network.head.named_parameters()}


def moments(learner, of):
    """Optimizer state of the parameters that `of` names."""
    parameters = dict(learner.context.network.named_parameters())
    return {
        (name, key): value.clone()
        for name, p in parameters.items()
        if name.startswith(of)
        for key, value in learner.trainer.optimizer.state[p].items()
    }


@pytest.mark.parametrize("name", ["er", "clib", "er-released", "clib-released", "rm"])
def test_old_rows_stay_bit_for_bit_and_what_is_drawn_again_lies_within_its_bound(name, golden):
    bound = np.float32(golden["linear_init_bound"]["weight_and_bias_uniform_bound"])
    learner = Learner(method(name), image=(3, 16, 16), classes=10, memory=60, network="resnet18")
    assert learner.context.network.features == golden["linear_init_bound"]["in_features"]
    learner.meet("a")
    learner.meet("b")
    before = head(learner)
    learner.meet("c")
    after = head(learner)
    assert (after["weight"][:2] != before["weight"][:2]).any(1).tolist() == [name == "rm"] * 2
    assert (after["bias"][:2] != before["bias"][:2]).tolist() == [name not in ("er", "clib")] * 2
    assert after["weight"][2].any()
    assert after["weight"].abs().max() <= bound
    assert after["bias"].abs().max() <= bound


def test_clib_carries_the_whole_optimizer_state_and_its_head_rate_restarts_when_released():
    learner = trained("clib-released", samples=15)
    before, body = moments(learner, "head"), moments(learner, "body")
    learner.meet(2)
    after = moments(learner, "head")
    assert {key for _, key in after} == {"step", "exp_avg", "exp_avg_sq"}
    for (name, key), value in after.items():
        assert torch.equal(value, before[name, key]), (name, key)
        if key == "step":
            assert float(value) == 15
        else:
            assert value[:2].any()
            assert not value[2:].any()
    assert all(torch.equal(value, body[which]) for which, value in moments(learner, "body").items())
    learner.observe(picture(), 2)
    rates = [group["lr"] for group in learner.trainer.optimizer.param_groups]
    assert rates == [pytest.approx(2.85e-4), 3e-4]  # rounds 11 to 20 are a low phase


def test_paper_clib_has_one_rate():
    learner = trained("clib", samples=15)
    learner.observe(picture(), 2)
    assert [group["lr"] for group in learner.trainer.optimizer.param_groups] == [pytest.approx(2.85e-4)]


@pytest.mark.parametrize("name", ["er", "er-released"])
def test_er_starts_the_head_and_every_rate_again_and_keeps_the_body(name):
    learner = trained(name, samples=16, hyperparameters=Hyperparameters(batch=8, gamma=0.9))
    rates = [group["lr"] for group in learner.trainer.optimizer.param_groups]
    assert rates == [pytest.approx(3e-4 * 0.9**15)] * len(rates)
    body = moments(learner, "body")
    assert {float(value) for (_, key), value in body.items() if key == "step"} == {16}
    learner.meet(2)
    assert not any(value.any() for value in moments(learner, "head").values())
    assert all(torch.equal(value, body[which]) for which, value in moments(learner, "body").items())
    used = []
    step = learner.trainer.optimizer.step
    learner.trainer.optimizer.step = lambda: (
        used.append([group["lr"] for group in learner.trainer.optimizer.param_groups]),
        step(),
    )
    for _ in range(4):
        learner.observe(picture(), 2)
    assert used[0] == [3e-4] * len(rates)
    assert used[1] == [pytest.approx(2.7e-4)] * len(rates)


@pytest.mark.parametrize(
    "moments, ratio", [("forget", 1.0), ("keep", 0.1 / (1 - 0.9**9) * np.sqrt((1 - 0.999**9) / 0.001))]
)
def test_first_adam_step_of_a_new_row(moments, ratio):
    """A fresh state moves by the rate; a carried step counter t by rate * (1-b1)/(1-b1^t) * sqrt((1-b2^t)/(1-b2))."""
    chosen = method("clib", HYPERPARAMETERS)
    constant = dataclasses.replace(chosen, head=Head(moments=moments), schedule=Constant(initial_lr=1e-3))
    learner = trained(constant, samples=8, network="mlp")
    net = learner.context.network
    row = learner.meet(2)
    before = net.head.weight[row].detach().clone()
    learner.observe(picture(), 2)
    moved = (net.head.weight[row] - before).detach().abs()
    t = 1 if moments == "forget" else 9
    expected = 1e-3 * (1 - 0.9) / (1 - 0.9**t) * np.sqrt((1 - 0.999**t) / (1 - 0.999))
    assert expected / 1e-3 == pytest.approx(ratio)
    assert float(moved.max()) == pytest.approx(expected, rel=1e-3)
