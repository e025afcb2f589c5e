"""CLIB's memory in both profiles: importance, ties, whole scenarios, and what its loss pass sees and leaves alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from iblurry.augment.pipeline import Augment
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, clib
from iblurry.parts import Balanced, Constant, Importance
from iblurry.parts.context import Context, Update

PROFILES = {"paper": "H_paper", "released": "H_official"}


@pytest.fixture
def filled(make_context, offer):
    """Makes a part with `size` rows of class 0."""

    def make(part, size, capacity=None):
        at_work = part.attach(make_context(capacity or size))
        for i in range(size):
            offer(at_work, 0, i)
        return at_work

    return make


def start(part, *importance):
    part.importance[: len(importance)] = torch.tensor(importance, dtype=torch.float64)


def refresh(part, rows, losses):
    rest = part.context.memory.capacity - len(losses)
    part.on_update(Update(torch.tensor(rows), F.pad(torch.tensor(losses, dtype=torch.float64), (0, rest))))


@pytest.mark.parametrize("rule", PROFILES)
def test_golden_trace(golden, filled, rule):
    case = golden["importance_no_replacement"]
    part = filled(Importance(rule=rule, step=case["lam"]), 6)
    refresh(part, [0], case["losses"][0])  # where the losses of row 0 become known
    start(part, *case["H0"])
    for rows, losses, expected in zip(
        case["batches"], case["losses"][1:], case[f"{PROFILES[rule]}_after_each"], strict=True
    ):
        refresh(part, rows, losses)
        np.testing.assert_allclose(part.importance[:6].numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("rule", PROFILES)
def test_the_first_refresh_leaves_importance_alone(golden, filled, rule):
    case = golden["importance_first_ever"]
    part = filled(Importance(rule=rule), 1, 3)
    refresh(part, case["batch"], case["cur_loss"])
    assert part.importance[:1].tolist() == case["H_official"]


@pytest.mark.parametrize(
    "rule, key", [("paper", "paper_multiplier"), ("released", "official_multiplier_of_batch_mean_when_loss_constant")]
)
def test_constant_loss(golden, filled, rule, key):
    """Some of the rows, and a whole batch of them."""
    case = golden["importance_constant_loss"]
    part = filled(Importance(rule=rule), 4)
    refresh(part, [0], case["prev_loss"])
    start(part, *case["H0"])
    refresh(part, case["batch"], case["cur_loss"])
    np.testing.assert_allclose(part.importance[:4].numpy(), case[PROFILES[rule]], atol=1e-9)
    case = golden["importance_growth_factor"]
    size = case["batch_size"]
    part = filled(Importance(rule=rule, step=case["lam"]), size)
    refresh(part, [0], [1.0] * size)
    start(part, *np.linspace(0.5, 2.5, size))
    refresh(part, list(range(size)), [1.0] * size)
    assert float(part.importance[:size].mean() / 1.5) == pytest.approx(case[key], abs=1e-9)


def test_rows_rewritten_since_the_last_measure_do_not_enter_the_decrease(filled, offer):
    part = filled(Importance(), 4)
    refresh(part, [0], [1.0, 2.0, 3.0, 4.0])
    start(part, 0.4, 0.1, 0.2, 0.3)
    assert offer(part, 1) == 1  # class 0 is the fullest; row 1 matters least
    assert float(part.importance[1]) == pytest.approx(0.25)  # alone in its class: the mean of all rows
    refresh(part, [1, 2], [0.5, 9.0, 2.0, 3.6])
    decrease = np.mean([0.5, 1.0, 0.4])  # row 1 is masked
    predicted = np.mean([0.25, 0.2])
    expected = [0.4, 0.25 + 0.1 * (decrease - predicted), 0.2 + 0.1 * (decrease - predicted), 0.3]  # but it still moves
    np.testing.assert_allclose(part.importance[:4].numpy(), expected, atol=1e-12)


def test_all_rows_rewritten_gives_no_decrease(filled, offer):
    part = filled(Importance(), 1)
    refresh(part, [0], [1.0])
    offer(part, 1)
    refresh(part, [0], [0.2])
    assert torch.isfinite(part.importance).all()
    assert float(part.importance[0]) == 0


def moved(rule, importance, pending, decrease):
    """By hand: distinct rows move once; the mean is over the list of rows with its repetitions."""
    mean = np.mean([importance[i] for i in pending])
    surprise = decrease - mean if rule == "paper" else decrease + mean / len(pending)
    return [h + 0.1 * surprise if i in pending else h for i, h in enumerate(importance)]


@pytest.mark.parametrize("rule", PROFILES)
def test_rows_pending_several_times_move_once(rule, filled):
    part = filled(Importance(rule=rule), 4)
    refresh(part, [0], [1.0, 2.0, 3.0, 4.0])
    before = [0.3, 0.6, 0.9, -0.2]
    start(part, *before)
    for rows in ([0, 1], [0, 3], [3, 0]):
        part.on_update(Update(torch.tensor(rows), None))
    assert part.importance[:4].tolist() == before  # nothing is measured yet
    refresh(part, [0, 1], [0.9, 1.7, 3.1, 3.2])
    expected = moved(rule, before, [0, 1, 0, 3, 3, 0, 0, 1], np.mean([0.1, 0.3, -0.1, 0.8]))
    np.testing.assert_allclose(part.importance[:4], expected, atol=1e-9)
    assert float(part.importance[2]) == before[2]
    refresh(part, [2], [0.9, 1.7, 3.1, 3.2])  # what was pending is forgotten
    np.testing.assert_allclose(part.importance[:4], moved(rule, expected, [2], 0.0), atol=1e-9)


@pytest.mark.parametrize("rule", PROFILES)
def test_a_whole_scenario_against_plain_lists(rule, make_context, offer):
    """Slots, labels and importance after each of 60 samples; two of the five classes come when the memory is full."""
    rng, capacity = np.random.default_rng(11), 6
    part = Importance(rule=rule).attach(make_context(capacity, rows=5))
    labels, held, H, previous = [], {c: [] for c in range(5)}, [], {}  # held: slots of a class, oldest first
    stream = [0, 0, 1, 0, 2, 1, 3, 0, 4, 4, 1, *rng.integers(0, 5, 49).tolist()]
    for n, label in enumerate(stream):
        if n < capacity:
            slot, others = n, held[label]
            labels.append(label)
            H.append(np.mean([H[i] for i in others]) if others else 0.0)
        else:
            counts = [(len(held[c]) + (c == label)) * (len(held[c]) > 0) for c in range(5)]
            victim = counts.index(max(counts))  # the earliest class of equals
            slot = min(held[victim], key=lambda i: H[i])  # the first in the list of equals
            held[victim].remove(slot)
            others = held[label]
            H[slot] = np.mean([H[i] for i in others] if others else H)  # a lone member: of all, the leaver too
            labels[slot] = label
        held[label].append(slot)
        previous.pop(slot, None)
        assert offer(part, label, n) == slot
        assert part.context.memory.labels[: len(labels)].tolist() == labels
        np.testing.assert_allclose(part.importance[: len(H)], H, atol=1e-9)

        rows = rng.choice(len(H), min(3, len(H)), replace=False).tolist()
        losses = rng.random(len(H)).round(1).tolist()
        same = [previous[i] - losses[i] for i in previous]
        H = moved(rule, H, rows, np.mean(same) if same else 0.0)
        previous = dict(enumerate(losses))
        refresh(part, rows, losses)
        np.testing.assert_allclose(part.importance[: len(H)], H, atol=1e-9)


@pytest.mark.parametrize("part", [Importance(), Importance(rule="released"), Balanced()])
def test_of_equally_full_classes_the_one_met_first_gives_way(part, make_context, offer):
    at_work = part.attach(make_context(6))
    for i, label in enumerate([2, 1, 0, 1, 2, 0]):  # head rows are numbered as classes are met
        offer(at_work, label, i)
    assert offer(at_work, 3, 9) in (2, 5)
    assert offer(at_work, 2, 9) in (0, 4)  # 2 counts three with the newcomer


def test_among_equals_the_first_of_the_class_leaves_and_a_slot_used_again_is_the_last(make_context, offer):
    part = Importance().attach(make_context(4))
    for i, label in enumerate([0, 1, 0, 0]):
        offer(part, label, i)
    start(part, 0.5, 0.0, 0.5, 0.5)
    assert offer(part, 0, 9) == 0  # all equal: the first
    assert float(part.importance[0]) == 0.5  # starts with the mean of the others
    assert [offer(part, 0, 10 + i) for i in range(3)] == [2, 3, 0]  # 0 went to the end of the list
    part.importance[3] = 0.4
    assert offer(part, 0, 20) == 3  # the lowest before the first


def test_running_mean_of_algorithm_2(golden, filled, offer, monkeypatch):
    for name, capacity in (("append", 5), ("replace", 4)):
        case = golden["paper_lprev"][name]
        part = filled(Importance(decrease="running"), 4, capacity)
        refresh(part, [0], case["memory_losses"])
        assert float(part.running) == case["l_prev_before"]
        start(part, 0.9, 0.1, 0.5, 0.7)  # row 1 leaves
        monkeypatch.setattr(Context, "losses", lambda *_, loss=case["new_loss"]: torch.tensor([loss]))
        row = offer(part, 0, 99)
        assert row == (4 if name == "append" else case["victim"])
        assert float(part.running) == pytest.approx(case["l_prev_after"], abs=1e-12)
        if name == "replace":
            assert float(part.running) == np.mean(case["equals_mean_of"])
        monkeypatch.undo()


def test_running_decrease_covers_the_whole_memory(filled):
    part = filled(Importance(decrease="running"), 2)
    refresh(part, [0], [2.0, 4.0])
    start(part, 0.0, 0.0)
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


def test_measuring_leaves_training_alone():
    """Until the memory is full a policy without a loss pass takes the same course, batch norm's statistics too."""
    rng, augment = np.random.default_rng(6), Augment(pad=2, flip=True)
    options = {"image": (1, 8, 8), "classes": 3, "memory": 30, "network": "convnet", "augment": augment}
    methods = (clib(Hyperparameters(batch=8), admission=one, schedule=Constant()) for one in (Importance(), Balanced()))
    measured, plain = (Learner(one, **options) for one in methods)
    assert measured.trainer.measures
    assert not plain.trainer.measures
    for n in range(30):
        image = rng.integers(0, 256, (1, 8, 8), dtype=np.uint8)
        measured.observe(image, n % 3)
        plain.observe(image, n % 3)
    expected = plain.context.network.state_dict()
    assert any(name.endswith("running_var") for name in expected)
    for name, value in measured.context.network.state_dict().items():
        assert torch.equal(value, expected[name]), name
