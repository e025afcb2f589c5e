"""The adaptive rate: its t-tests, Algorithm 3's golden trace, and the released rule told again slot by slot."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from iblurry.parts import Adaptive
from iblurry.parts.context import Update
from iblurry.parts.memory import Sample
from iblurry.parts.schedule import adaptive
from iblurry.parts.schedule.adaptive import p_lower_is_better

SLOTS = 12


def test_t_tests_golden(golden):
    case = golden["t_tests"]
    for pooled, p, df in ((False, case["welch_p"], case["welch_df"]), (True, case["student_p"], case["student_df"])):
        assert p == pytest.approx(stats.t.sf(case["t"], df), abs=1e-9)
        assert p_lower_is_better(case["low"], case["high"], pooled=pooled) == pytest.approx(p, abs=1e-9)
        assert p_lower_is_better(case["high"], case["low"], pooled=pooled) == pytest.approx(1 - p, abs=1e-9)
    assert math.isnan(p_lower_is_better([0.1] * 10, [0.1] * 10, pooled=True))


@pytest.mark.parametrize("pooled", [True, False])
def test_t_tests_against_scipy(pooled):
    rng = np.random.default_rng(0)
    for _ in range(20):
        low, high = rng.normal(0.01, 0.02, 10), rng.normal(0.0, 0.05, 10)
        expected = stats.ttest_ind(low, high, equal_var=pooled, alternative="greater").pvalue
        assert p_lower_is_better(low.tolist(), high.tolist(), pooled=pooled) == pytest.approx(expected, rel=1e-9)


def test_algorithm_3_golden_trace(golden, make_context, monkeypatch):
    """Rate, base, event and p of each trial."""
    case, seen, events = golden["adaptive_lr_paper"], [], []
    monkeypatch.setattr(
        adaptive,
        "p_lower_is_better",
        lambda *sides, pooled: seen.append(p_lower_is_better(*sides, pooled=pooled)) or seen[-1],
    )
    schedule = Adaptive(initial_lr=case["lr0"], gamma=case["gamma"], history=case["m"], alpha=case["alpha"])
    schedule, before = schedule.attach(make_context(2)), None
    assert schedule.lr == pytest.approx(case["lr0"] / case["gamma"])  # the first trial is a high one
    for call, in_use, loss, after, base, p, event in case["trace"]:
        assert schedule.is_high == (in_use == "high")
        old = schedule.base
        seen.clear()
        schedule.judge(None if before is None else before - loss)
        before = loss
        assert seen == ([] if p is None else [pytest.approx(p, abs=1e-9)]), call
        assert (schedule.lr, schedule.base) == (pytest.approx(after, rel=1e-12), pytest.approx(base, rel=1e-12))
        assert (schedule.base != old) == bool(event)
        if event:
            events.append((call, event))
        if call == 20:
            assert (schedule.base, schedule.lr) == (pytest.approx(2.7075e-4), pytest.approx(2.572125e-4))
    assert events == [(20, "decrease"), (65, "increase"), (85, "increase"), (105, "increase")]


class Released:
    """The released program's rule from its description: dictionaries of slots, no tensors, none of our code."""

    def __init__(self):
        self.high, self.low, self.is_high = 3e-4, 0.95 * 3e-4, True
        self.calls, self.gains, self.before, self.touched, self.events = 0, {True: [], False: []}, {}, set(), []

    @property
    def rate(self):
        return self.high if self.is_high else self.low

    def call(self, losses):
        self.calls += 1
        if self.calls % 10:
            return
        if self.before and self.calls > 20:
            same = [self.before[i] - losses[i] for i in self.before if i not in self.touched]
            self.gains[self.is_high] = [*self.gains[self.is_high], np.mean(same)][-10:]
        self.before, self.touched, self.is_high = dict(losses), set(), not self.is_high
        if len(self.gains[True]) == len(self.gains[False]) >= 10:
            p = welch(self.gains[False], self.gains[True])
            if p < 0.05:
                self.high, self.low = self.low, 0.95 * self.low
            elif p > 0.95:
                self.high, self.low = self.high / 0.95, self.high
            if p < 0.05 or p > 0.95:
                self.events.append((self.calls, "down" if p < 0.05 else "up"))
                self.gains, self.is_high = {True: [], False: []}, not self.is_high


def welch(low, high):
    """One-sided: how likely a mean(low) so far above mean(high) is by chance."""
    shares = [np.var(x, ddof=1) / len(x) for x in (low, high)]
    t = (np.mean(low) - np.mean(high)) / np.sqrt(sum(shares))
    df = sum(shares) ** 2 / sum(s**2 / (len(low) - 1) for s in shares)
    return stats.t.sf(t, df)


def gain(rate, call, noise):
    """How far one call lowers every loss: lower rates do better at first, higher ones from call 500 on."""
    better = 2 - rate / 3e-4 if call < 500 else rate / 3e-4
    return 1e-3 * better + 2e-5 * noise


def test_1200_calls_of_the_released_rule(make_context):
    """Slot by slot: the memory fills while it goes, and slots are rewritten with losses of another size."""
    rng = np.random.default_rng(1)
    reference, schedule = Released(), Adaptive().released().attach(make_context(SLOTS))
    memory, offset, level, rates = schedule.context.memory, {}, 5.0, []
    for call in range(1, 1201):
        if call <= SLOTS or rng.random() < 0.3:
            slot = call - 1 if call <= SLOTS else int(rng.integers(SLOTS))
            memory.write(memory.row(slot), Sample(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.tensor([0]), 0))
            reference.touched.add(slot)
            offset[slot] = rng.normal(0, 2)
        level -= gain(reference.rate, call, rng.normal())
        losses = {slot: level + extra for slot, extra in offset.items()}
        reference.call(losses)
        row = torch.tensor([losses.get(slot, 0.0) for slot in range(SLOTS)], dtype=torch.float64)
        schedule.step(Update(torch.zeros(0, dtype=torch.int64), row, last_of_round=True))
        assert schedule.lr == pytest.approx(reference.rate, rel=1e-9), f"call {call}"
        rates.append(schedule.lr)
    assert sorted({round(rate, 9) for rate in rates[:219]}) == [2.85e-4, 3e-4]  # nothing moves before call 220
    assert reference.events == [(220, "down"), (420, "down"), (700, "up"), (900, "up"), (1100, "up")]


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


@pytest.mark.parametrize("schedule", [Adaptive(), Adaptive().released()])
def test_equal_gains_move_nothing(schedule, make_context):
    at_work = schedule.attach(make_context(2))
    for _ in range(40):
        at_work.judge(0.25)  # 0 / 0
    assert at_work.base == 3e-4
    assert at_work.high_gains == at_work.low_gains == [0.25] * 10
