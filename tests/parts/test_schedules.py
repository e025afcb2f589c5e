from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.parts import ByConfidence, Constant, Cosine, Exponential, MultiStep
from iblurry.parts.context import Update

UPDATE = Update(torch.zeros(0, dtype=torch.int64), None)


def test_exponential_golden(golden, make_context):
    case = golden["exp_reset"]
    schedule = Exponential(initial_lr=case["lr0"], gamma=case["gamma"]).attach(make_context(2))
    used = []
    for event in case["events"]:
        if event == "n":
            schedule.on_class(0)
        else:
            used.append(schedule.lr)
            schedule.step(UPDATE)
    np.testing.assert_allclose(used, case["lr_used"], atol=1e-12)
    for gamma, updates, expected in (
        (case["gamma"], 1000, case["lr_after_1000_updates"]),
        (case["gamma"], 10000, case["lr_after_10000_updates"]),
        (0.99995, 10000, case["lr_gamma_99995_after_10000"]),
    ):
        schedule = Exponential(initial_lr=case["lr0"], gamma=gamma).attach(make_context(2))
        for _ in range(updates):
            schedule.step(UPDATE)
        assert schedule.lr == pytest.approx(expected, rel=1e-9)


def test_exponential_without_restart_and_per_round(make_context):
    steady = Exponential(gamma=0.5, restart_on_class=False).attach(make_context(2))
    rounds = Exponential(gamma=0.5, per="round").attach(make_context(2))
    for schedule in (steady, rounds):
        schedule.step(UPDATE)
        schedule.step(UPDATE._replace(last_of_round=True))
        schedule.on_class(1)
    assert steady.lr == 3e-4 / 4
    assert rounds.lr == 3e-4  # one decay, then a new class
    rounds.step(UPDATE)
    assert rounds.lr == 3e-4
    rounds.step(UPDATE._replace(last_of_round=True))
    assert rounds.lr == 1.5e-4


def test_exponential_per_sample(make_context):
    schedule = Exponential(initial_lr=1.0, gamma=0.5, per="sample").attach(make_context(2))
    for seen, expected in ((3, 1 / 8), (3, 1 / 8), (5, 1 / 32)):
        schedule.context.counters.seen = seen
        schedule.step(UPDATE)
        assert schedule.lr == expected
    schedule.context.counters.seen = 7
    schedule.on_class(0)  # of the samples so far none counts any more
    assert schedule.lr == 1
    schedule.context.counters.seen = 8
    schedule.step(UPDATE)
    assert schedule.lr == 0.5


@pytest.mark.parametrize("trust, factor", [(0.0, 1.0), (0.25, 0.75), (1.0, 0.0)])
def test_the_more_a_teacher_is_trusted_the_slower(make_context, trust, factor):
    schedule = ByConfidence(initial_lr=0.1).attach(make_context(2))
    schedule.trust.value.fill_(trust)
    assert float(schedule.lr_scale) == factor
    assert schedule.lr == 0.1
    assert Constant().attach(make_context(2)).lr_scale is None


def test_constant_stays(make_context):
    schedule = Constant(initial_lr=0.1).attach(make_context(2))
    schedule.step(UPDATE)
    schedule.on_class(0)
    assert schedule.lr == schedule.head_lr == 0.1


def by_epoch(schedule, epochs, updates_each=3):
    """The rate of each epoch; it must not move inside one."""
    rates = []
    for _ in range(epochs):
        rates.append(schedule.lr)
        for left in range(updates_each - 1, -1, -1):
            assert schedule.lr == rates[-1]
            schedule.step(UPDATE._replace(last_of_round=left == 0))
    return rates


@pytest.mark.parametrize("name", ["rm", "gdumb"])
def test_cosine_restarts_are_golden(name, golden, make_context):
    case = golden["sgdr"]
    schedule = Cosine(floor=case[f"{name}_eta_min"]).attach(make_context(2))
    rates = by_epoch(schedule, 256)
    for epoch, expected in case[name]:
        assert rates[epoch] == pytest.approx(expected, abs=1e-11), epoch
    assert [epoch for epoch in range(1, 256) if rates[epoch] == 0.05] == case["restarts_at_epochs"]


def test_cosine_cycles(make_context):
    rates = by_epoch(Cosine(initial_lr=1.0, floor=0.0, warm=0.5, cycle=2, growth=3).attach(make_context(2)), 10)
    first, second = np.array([0, 1]) / 2, np.arange(6) / 6
    expected = [0.5, *(1 + np.cos(np.pi * np.concatenate([first, second, [0]]))) / 2]
    np.testing.assert_allclose(rates, expected, atol=1e-12)


def test_multistep(make_context):
    rates = by_epoch(MultiStep().attach(make_context(2)), 100)
    assert rates[0] == pytest.approx(0.005)
    for epochs, rate in ((range(1, 31), 0.05), (range(31, 61), 5e-3), (range(61, 81), 5e-4), (range(81, 91), 5e-5)):
        assert [rates[epoch] for epoch in epochs] == pytest.approx([rate] * len(epochs))
    assert rates[91:] == pytest.approx([5e-6] * 9)
    soon = MultiStep(initial_lr=8.0, warm=0.5, milestones=(1, 3), factor=0.5).attach(make_context(2))
    assert by_epoch(soon, 6) == [4, 8, 4, 4, 2, 2]
