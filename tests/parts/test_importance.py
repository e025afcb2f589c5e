from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from iblurry.errors import InputError
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, clib
from iblurry.methods.method import Pace
from iblurry.parts import Constant, Importance
from iblurry.parts.context import Context, Update
from iblurry.parts.memory import Memory

PROFILES = {"paper": "H_paper", "released": "H_official"}


def filled(part, context, offer, size, start=None):
    """The part with `size` rows of class 0, importance `start`."""
    at_work = part.attach(context)
    for i in range(size):
        offer(at_work, 0, i)
    if start is not None:
        at_work.importance[:size] = torch.tensor(start, dtype=torch.float64)
    return at_work


def refresh(part, rows, losses):
    losses = torch.nn.functional.pad(
        torch.tensor(losses, dtype=torch.float64), (0, part.context.memory.capacity - len(losses))
    )
    part.on_update(Update(torch.tensor(rows), losses))


@pytest.mark.parametrize("rule", PROFILES)
def test_golden_trace(golden, make_context, offer, rule):
    case = golden["importance_no_replacement"]
    part = filled(Importance(rule=rule, step=case["lam"]), make_context(6), offer, 6)
    refresh(part, [0], case["losses"][0])  # where the losses of row 0 become known
    part.importance[:6] = torch.tensor(case["H0"], dtype=torch.float64)
    for rows, losses, expected in zip(
        case["batches"], case["losses"][1:], case[f"{PROFILES[rule]}_after_each"], strict=True
    ):
        refresh(part, rows, losses)
        np.testing.assert_allclose(part.importance[:6].numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("rule", PROFILES)
def test_the_first_refresh_leaves_importance_alone(golden, make_context, offer, rule):
    case = golden["importance_first_ever"]
    part = filled(Importance(rule=rule), make_context(3), offer, 1)
    refresh(part, case["batch"], case["cur_loss"])
    assert part.importance[:1].tolist() == case["H_official"]


@pytest.mark.parametrize("rule", PROFILES)
def test_constant_loss(golden, make_context, offer, rule):
    case = golden["importance_constant_loss"]
    part = filled(Importance(rule=rule), make_context(4), offer, 4)
    refresh(part, [0], case["prev_loss"])
    part.importance[:4] = torch.tensor(case["H0"], dtype=torch.float64)
    refresh(part, case["batch"], case["cur_loss"])
    np.testing.assert_allclose(part.importance[:4].numpy(), case[PROFILES[rule]], atol=1e-9)


@pytest.mark.parametrize(
    "rule, key", [("paper", "paper_multiplier"), ("released", "official_multiplier_of_batch_mean_when_loss_constant")]
)
def test_growth_of_the_batch_mean(golden, make_context, offer, rule, key):
    case = golden["importance_growth_factor"]
    size = case["batch_size"]
    part = filled(Importance(rule=rule, step=case["lam"]), make_context(size), offer, size)
    refresh(part, [0], [1.0] * size)
    part.importance[:size] = torch.linspace(0.5, 2.5, size, dtype=torch.float64)
    before = part.importance[:size].mean()
    refresh(part, list(range(size)), [1.0] * size)
    assert float(part.importance[:size].mean() / before) == pytest.approx(case[key], abs=1e-9)


def test_rows_rewritten_since_the_last_measure_do_not_enter_the_decrease(make_context, offer):
    part = filled(Importance(), make_context(4), offer, 4)
    refresh(part, [0], [1.0, 2.0, 3.0, 4.0])
    part.importance[:4] = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64)
    assert offer(part, 1) == 1  # class 0 is the fullest; row 1 matters least
    assert float(part.importance[1]) == pytest.approx(
        np.mean([0.4, 0.1, 0.2, 0.3])
    )  # alone in its class: all rows' mean
    refresh(part, [1, 2], [0.5, 9.0, 2.0, 3.6])
    decrease = np.mean([0.5, 1.0, 0.4])  # row 1 is masked
    predicted = np.mean([0.25, 0.2])
    expected = [0.4, 0.25 + 0.1 * (decrease - predicted), 0.2 + 0.1 * (decrease - predicted), 0.3]  # but it still moves
    np.testing.assert_allclose(part.importance[:4].numpy(), expected, atol=1e-12)


def test_a_row_used_twice_moves_once_but_counts_twice_in_the_mean(make_context, offer):
    part = filled(Importance(), make_context(3), offer, 3)
    refresh(part, [0], [1.0, 1.0, 1.0])
    part.importance[:3] = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)
    part.on_update(Update(torch.tensor([0, 1]), None))  # not measured: only noted
    assert part.importance[:3].tolist() == [0.3, 0.6, 0.9]
    refresh(part, [0], [0.5, 0.5, 0.5])
    surprise = 0.5 - np.mean([0.3, 0.6, 0.3])
    np.testing.assert_allclose(part.importance[:3], [0.3 + 0.1 * surprise, 0.6 + 0.1 * surprise, 0.9], atol=1e-12)


def test_all_rows_rewritten_gives_no_decrease(make_context, offer):
    part = filled(Importance(), make_context(1), offer, 1)
    refresh(part, [0], [1.0])
    offer(part, 1)
    refresh(part, [0], [0.2])
    assert torch.isfinite(part.importance).all()
    assert float(part.importance[0]) == 0


def test_a_whole_scenario_against_plain_python(make_context, offer):
    """Fill, then replace, with a class that has no member: rows, labels and importance at each step."""
    rng = np.random.default_rng(5)
    capacity = 5
    part = Importance().attach(make_context(capacity))
    rows, importance, prev, lists = [None] * capacity, np.zeros(capacity), np.full(capacity, np.nan), {}
    for n, label in enumerate([0, 0, 1, 0, 1, 2, 1, 1, 2, 3, 0, 0, 3, 2, 1, 0]):
        if n < capacity:
            slot = n
            others = lists.get(label, [])
            start = importance[others].mean() if others else 0.0
        else:
            freq = [len(lists.get(c, [])) + (c == label) if lists.get(c) else 0 for c in range(4)]
            victim = int(np.argmax(freq))
            slot = min(lists[victim], key=lambda i: importance[i])  # the first of the list on a tie
            others = [i for i in lists.get(label, []) if i != slot]
            start = importance[others].mean() if others else importance.mean()
            lists[victim].remove(slot)
        lists.setdefault(label, []).append(slot)
        rows[slot], importance[slot], prev[slot] = label, start, np.nan
        assert offer(part, label, n) == slot
        size = min(n + 1, capacity)
        batch = rng.choice(size, min(2, size), replace=False)
        losses = rng.random(size)
        same = [i for i in range(size) if not np.isnan(prev[i])]
        decrease = np.mean([prev[i] - losses[i] for i in same]) if same else 0.0
        importance[batch] += 0.1 * (decrease - importance[batch].mean())
        prev[:size] = losses
        refresh(part, batch.tolist(), losses.tolist())
        np.testing.assert_allclose(part.importance[:-1].numpy(), importance, atol=1e-12)
        assert part.context.memory.labels[:size].tolist() == rows[:size]


def test_the_longest_held_leaves_on_a_tie(make_context, offer):
    part = filled(Importance(), make_context(3), offer, 3)
    assert [offer(part, 0, 10 + i) for i in range(4)] == [0, 1, 2, 0]  # all 0: the oldest each time


def test_running_mean_of_algorithm_2(golden, make_context, offer, monkeypatch):
    for name, capacity in (("append", 5), ("replace", 4)):
        case = golden["paper_lprev"][name]
        part = filled(Importance(decrease="running"), make_context(capacity), offer, 4)
        refresh(part, [0], case["memory_losses"])
        assert float(part.running) == case["l_prev_before"]
        part.importance[:4] = torch.tensor([0.9, 0.1, 0.5, 0.7], dtype=torch.float64)  # row 1 leaves
        monkeypatch.setattr(Context, "losses", lambda *_, loss=case["new_loss"]: torch.tensor([loss]))
        row = offer(part, 0, 99)
        assert row == (4 if name == "append" else case["victim"])
        assert float(part.running) == pytest.approx(case["l_prev_after"], abs=1e-12)
        if name == "replace":
            assert float(part.running) == np.mean(case["equals_mean_of"])
        monkeypatch.undo()


def test_running_decrease_covers_the_whole_memory(make_context, offer):
    part = filled(Importance(decrease="running"), make_context(2), offer, 2)
    refresh(part, [0], [2.0, 4.0])
    part.importance[:2] = 0.0
    refresh(part, [0, 1], [1.0, 3.0])
    np.testing.assert_allclose(part.importance[:2], [0.1, 0.1], atol=1e-12)


@pytest.mark.parametrize("per_sample", [1, 3])
def test_some_rows_are_measured_in_turn_and_credit_is_of_those_measured_twice(samples, per_sample, monkeypatch):
    """Against plain numpy, from what each measure saw."""
    hyperparameters = Hyperparameters(batch=8, updates_per_sample=per_sample)
    pace = dataclasses.replace(clib(hyperparameters).pace, measure_rows=16)
    method = clib(hyperparameters, pace=pace, schedule=Constant(initial_lr=1e-3))
    learner = Learner(method, image=(1, 8, 8), memory=24, classes=5, network="mlp")
    part, memory = learner.method.admission, learner.context.memory
    seen, gains, whole = [], [], Context.memory_losses
    credit = part._credit

    def watched(losses):
        everyone = whole(learner.context).numpy()
        learner.context.spent.forward["losses"] -= memory.size  # of this look
        rows = np.flatnonzero(losses.numpy()[: memory.size] >= 0)
        np.testing.assert_allclose(losses.numpy()[rows], everyone[rows], rtol=1e-5)
        now = dict(zip(rows, losses.numpy()[rows], strict=True))
        before, clock = seen[-1] if seen else ({}, 0)
        same = [r for r in now if r in before and memory.written_at[r] <= clock]
        fell = np.mean([before[r] - now[r] for r in same]) if same else 0.0
        used = part.used.numpy().copy()
        expected = part.importance.numpy().copy()
        expected[used > 0] += 0.1 * (fell - (expected * used).sum() / used.sum())
        credit(losses)
        np.testing.assert_allclose(part.importance.numpy(), expected, atol=1e-12)
        seen.append((now, int(memory.clock)))
        gains.append(len(same))

    part.credit = watched
    for image, label in samples:
        learner.observe(image, label)
    assert {len(now) for now, _ in seen[16 * per_sample :]} == {16}
    assert {row for now, _ in seen[-24 * per_sample :] for row in now} == set(range(24))
    assert min(gains[16 * per_sample :]) >= 13  # one moves out, two at most are new
    assert learner.context.spent.forward["losses"] == sum(map(len, (now for now, _ in seen)))


def test_a_window_moves_through_a_memory_that_grows():
    memory = Memory(100, (1, 1, 1))
    for memory.size in (20, 37, 100):
        windows = [memory.window(start, 16).tolist() for start in range(200)]
        assert {row for window in windows for row in window} == set(range(memory.size))
        assert all(len(set(window)) == 16 for window in windows)
        steps = [(b[0] - a[0]) % memory.size for a, b in itertools.pairwise(windows)]
        assert max(steps) == 1
        assert all(b == (a + 1) % memory.size for window in windows for a, b in itertools.pairwise(window))


def test_the_running_mean_of_algorithm_2_needs_every_row():
    pace = Pace(stream_batch=1, measure_rows=64)
    with pytest.raises(InputError, match=r"running.*measure_rows=64"):
        clib(admission=Importance(decrease="running"), pace=pace)


def test_released_changes_the_rule_only():
    assert Importance(step=0.2).released() == Importance(step=0.2, rule="released")


@pytest.mark.parametrize("field", [{"step": 0}, {"step": 2}, {"rule": "own"}, {"decrease": "some"}])
def test_bad_fields(field):
    with pytest.raises(InputError, match=next(iter(field))):
        Importance(**field)
