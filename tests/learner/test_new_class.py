"""What a new class does to the head and to its optimizer, in either profile."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.augment.pipeline import Augment
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, method

RNG = np.random.default_rng(3)
HYPERPARAMETERS = Hyperparameters(batch=8)


def picture(shape=(1, 8, 8)):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def trained(name, samples, hyperparameters=HYPERPARAMETERS):
    """Two classes in turn."""
    learner = Learner(
        method(name, hyperparameters), image=(1, 8, 8), classes=6, memory=40, network="convnet", augment=Augment(pad=1)
    )
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


@pytest.mark.parametrize("name", ["er", "clib"])
def test_old_rows_stay_bit_for_bit_and_released_draws_the_bias_within_its_bound(name, golden):
    bound = np.float32(golden["linear_init_bound"]["weight_and_bias_uniform_bound"])
    for chosen in (name, f"{name}-released"):
        learner = Learner(method(chosen), image=(3, 16, 16), classes=10, memory=60, network="resnet18")
        assert learner.context.network.features == golden["linear_init_bound"]["in_features"]
        learner.meet("a")
        learner.meet("b")
        before = head(learner)
        learner.meet("c")
        after = head(learner)
        assert torch.equal(after["weight"][:2], before["weight"][:2])
        assert after["weight"][2].any()
        assert after["weight"].abs().max() <= bound
        assert after["bias"].abs().max() <= bound
        assert (after["bias"][:2] != before["bias"][:2]).tolist() == [chosen != name] * 2


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
