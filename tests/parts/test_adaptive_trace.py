"""The adaptive rate call by call: the released rule told again slot by slot, and every p of Algorithm 3's trace."""

from __future__ import annotations

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


def test_an_event_keeps_the_phase_and_shifts_the_pair(make_context):
    for lower_wins, pair in ((True, [0.95 * 3e-4, 0.95**2 * 3e-4]), (False, [3e-4 / 0.95, 3e-4])):
        schedule = Adaptive(trial=1, ignore=0, history=2).released().attach(make_context(2))
        for n, won in enumerate([not lower_wins, lower_wins] * 2):  # high, low, high, low
            schedule.judge((1.0 if won else 0.5) + 1e-4 * n)
        assert not schedule.is_high  # the test came after a low trial: low goes on
        assert schedule.lr == pytest.approx(pair[1])
        schedule.judge(0.0)
        assert schedule.lr == pytest.approx(pair[0])


def test_every_p_of_algorithm_3(golden, make_context, monkeypatch):
    case, seen = golden["adaptive_lr_paper"], []
    monkeypatch.setattr(
        adaptive,
        "p_lower_is_better",
        lambda *sides, pooled: seen.append(p_lower_is_better(*sides, pooled=pooled)) or seen[-1],
    )
    schedule = Adaptive(initial_lr=case["lr0"], gamma=case["gamma"], history=case["m"], alpha=case["alpha"])
    schedule, before, columns = schedule.attach(make_context(2)), None, case["columns"]
    assert schedule.lr == pytest.approx(case["lr0"] / case["gamma"])  # the first trial is a high one
    for values in case["trace"]:
        row = dict(zip(columns, values, strict=True))
        seen.clear()
        schedule.judge(None if before is None else before - row["loss_now"])
        before = row["loss_now"]
        assert seen == ([] if row["p"] is None else [pytest.approx(row["p"], abs=1e-9)]), row["call"]
        if row["call"] == 20:
            assert row["event"] == "decrease"
            assert (schedule.base, schedule.lr) == (pytest.approx(2.7075e-4), pytest.approx(2.572125e-4))


def test_t_and_its_degrees_of_freedom(golden):
    case = golden["t_tests"]
    low, high = np.array(case["low"]), np.array(case["high"])
    t = (low.mean() - high.mean()) / np.sqrt(low.var(ddof=1) / 10 + high.var(ddof=1) / 10)  # the same in both tests
    assert t == pytest.approx(case["t"], abs=1e-9)
    for pooled, df in ((False, case["welch_df"]), (True, case["student_df"])):
        expected = stats.t.sf(case["t"], df)
        assert p_lower_is_better(case["low"], case["high"], pooled=pooled) == pytest.approx(expected, abs=1e-9)
        assert p_lower_is_better(case["high"], case["low"], pooled=pooled) == pytest.approx(1 - expected, abs=1e-9)


@pytest.mark.parametrize("schedule", [Adaptive(), Adaptive().released()])
def test_equal_gains_move_nothing(schedule, make_context):
    at_work = schedule.attach(make_context(2))
    for _ in range(40):
        at_work.judge(0.25)  # 0 / 0
    assert at_work.base == 3e-4
    assert at_work.high_gains == at_work.low_gains == [0.25] * 10
