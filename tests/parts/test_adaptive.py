from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from iblurry.errors import InputError
from iblurry.parts import Adaptive
from iblurry.parts.context import Update
from iblurry.parts.schedule.adaptive import p_lower_is_better


def test_t_tests_golden(golden):
    case = golden["t_tests"]
    assert p_lower_is_better(case["low"], case["high"], pooled=False) == pytest.approx(case["welch_p"], abs=1e-9)
    assert p_lower_is_better(case["low"], case["high"], pooled=True) == pytest.approx(case["student_p"], abs=1e-9)
    assert math.isnan(p_lower_is_better([0.1] * 10, [0.1] * 10, pooled=True))


@pytest.mark.parametrize("pooled", [True, False])
def test_t_tests_against_scipy(pooled):
    rng = np.random.default_rng(0)
    for _ in range(20):
        low, high = rng.normal(0.01, 0.02, 10), rng.normal(0.0, 0.05, 10)
        expected = stats.ttest_ind(low, high, equal_var=pooled, alternative="greater").pvalue
        assert p_lower_is_better(low.tolist(), high.tolist(), pooled=pooled) == pytest.approx(expected, rel=1e-9)


def test_algorithm_3_golden_trace(golden, make_context):
    case = golden["adaptive_lr_paper"]
    schedule = Adaptive(initial_lr=case["lr0"], gamma=case["gamma"], history=case["m"], alpha=case["alpha"]).attach(
        make_context(2)
    )
    before, events = None, []
    for call, in_use, loss, after, base, _, event in case["trace"]:
        assert schedule.is_high == (in_use == "high")
        old = schedule.base
        schedule.judge(None if before is None else before - loss)
        before = loss
        assert schedule.lr == pytest.approx(after, rel=1e-12)
        assert schedule.base == pytest.approx(base, rel=1e-12)
        assert (schedule.base != old) == bool(event)
        if event:
            events.append((call, event))
    assert events == [(20, "decrease"), (65, "increase"), (85, "increase"), (105, "increase")]


def drive(schedule, loss_of, rounds):
    """Feeds rounds whose loss is a function of the rate in use; yields (round, rate) after each."""
    memory = schedule.context.memory
    memory.written_at[: memory.capacity] = 1
    memory.clock.fill_(1)
    level = 5.0
    for n in range(1, rounds + 1):
        level -= loss_of(schedule.lr, n)
        losses = torch.full((memory.capacity,), level, dtype=torch.float64)
        schedule.step(Update(torch.zeros(0, dtype=torch.int64), losses, last_of_round=True))
        yield n, schedule.lr


def released_reference(gain, rounds, rate=3e-4, gamma=0.95):
    """The released program's rule told again in plain Python, from its description."""
    high, low, is_high, histories, level, before = rate, gamma * rate, True, {True: [], False: []}, 5.0, None
    for n in range(1, rounds + 1):
        level -= gain(high if is_high else low, n)
        if n % 10 == 0:
            if before is not None and n > 20:
                histories[is_high] = (histories[is_high] + [before - level])[-10:]
            before, is_high = level, not is_high
            if len(histories[True]) == len(histories[False]) >= 10:
                p = stats.ttest_ind(histories[False], histories[True], equal_var=False, alternative="greater").pvalue
                if p < 0.05:
                    high, low = low, gamma * low
                elif p > 0.95:
                    high, low = high / gamma, high
                if p < 0.05 or p > 0.95:
                    histories, is_high = {True: [], False: []}, not is_high
        yield n, high if is_high else low


def noisy_gain(rate, n):
    """Learns best near 2.2e-4, with noise that depends on the round alone."""
    return 1e-3 - 3e3 * (rate - 2.2e-4) ** 2 * 10 + 1e-4 * math.sin(7.3 * n) * (1 + math.sin(n))


def test_released_rule_over_1200_calls(make_context):
    mine = list(drive(Adaptive(rule="released", test="welch").attach(make_context(3)), noisy_gain, 1200))
    reference = list(released_reference(noisy_gain, 1200))
    np.testing.assert_allclose([r for _, r in mine], [r for _, r in reference], rtol=1e-9)
    pairs = {round(math.log(r / 3e-4, 0.95), 6) for n, r in mine if n < 220}
    assert pairs == {0, 1}  # nothing moves before call 220
    assert len({r for _, r in mine}) > 4  # and then it does


def test_the_first_test_comes_at_call_220(make_context):
    schedule = Adaptive().attach(make_context(2))
    moved = [
        n for n, _ in drive(schedule, lambda rate, n: 1e-3 / rate * 1e-4 + 1e-7 * (n % 3), 240) if schedule.base != 3e-4
    ]
    assert moved[0] == 220
    assert schedule.base == pytest.approx(3e-4 * 0.95**2)  # lower is better here


def test_rows_rewritten_during_a_trial_do_not_count(make_context):
    schedule = Adaptive(trial=1, ignore=0).attach(make_context(3))
    memory = schedule.context.memory
    memory.written_at[:3] = torch.tensor([1, 2, 3])
    memory.clock.fill_(3)
    rows = torch.zeros(0, dtype=torch.int64)
    schedule.step(Update(rows, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), True))
    memory.written_at[1], _ = 4, memory.clock.fill_(4)
    schedule.step(Update(rows, torch.tensor([0.5, 9.0, 2.8], dtype=torch.float64), True))
    assert schedule.low_gains == pytest.approx([np.mean([0.5, 0.2])])
    memory.written_at[:3] = 5
    schedule.step(Update(rows, torch.tensor([0.5, 9.0, 2.8], dtype=torch.float64), True))
    assert schedule.high_gains == []  # every row was rewritten: no number


def test_only_measured_rounds_count(make_context):
    schedule = Adaptive().attach(make_context(2))
    rows, losses = torch.zeros(0, dtype=torch.int64), torch.zeros(2, dtype=torch.float64)
    schedule.step(Update(rows, None, True))
    schedule.step(Update(rows, losses, False))
    assert schedule.rounds == 0
    schedule.step(Update(rows, losses, True))
    assert schedule.rounds == 1


def test_released_puts_the_head_back_until_the_next_trial(make_context):
    schedule = Adaptive(trial=2, ignore=0).released().attach(make_context(2))
    rows, losses = torch.zeros(0, dtype=torch.int64), torch.zeros(2, dtype=torch.float64)
    for _ in range(2):
        schedule.step(Update(rows, losses, True))
    assert schedule.lr == pytest.approx(2.85e-4)  # a low phase
    schedule.on_class(1)
    assert (schedule.head_lr, schedule.lr) == (3e-4, pytest.approx(2.85e-4))
    for _ in range(2):
        schedule.step(Update(rows, losses, True))
    assert schedule.head_lr == schedule.lr
    paper = Adaptive().attach(make_context(2))
    paper.on_class(1)
    assert paper.head_lr == paper.lr


@pytest.mark.parametrize(
    "field", [{"gamma": 1}, {"alpha": 0.6}, {"history": 1}, {"rule": "x"}, {"test": "x"}, {"trial": 0}]
)
def test_bad_fields(field):
    with pytest.raises(InputError):
        Adaptive(**field)
