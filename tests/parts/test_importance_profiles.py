"""CLIB's memory in both profiles: repeated rows, a whole scenario, ties, class counts, and what the loss pass sees."""

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
from iblurry.parts.context import Update

RULES = ["paper", "released"]


def refresh(part, rows, losses):
    rest = part.context.memory.capacity - len(losses)
    part.on_update(Update(torch.tensor(rows), F.pad(torch.tensor(losses, dtype=torch.float64), (0, rest))))


def moved(rule, importance, pending, decrease):
    """By hand: distinct rows move once; the mean is over the list of rows with its repetitions."""
    mean = np.mean([importance[i] for i in pending])
    surprise = decrease - mean if rule == "paper" else decrease + mean / len(pending)
    return [h + 0.1 * surprise if i in pending else h for i, h in enumerate(importance)]


@pytest.mark.parametrize("rule", RULES)
def test_rows_pending_several_times_move_once(rule, make_context, offer):
    part = Importance(rule=rule).attach(make_context(4))
    for i in range(4):
        offer(part, 0, i)
    refresh(part, [0], [1.0, 2.0, 3.0, 4.0])
    start = [0.3, 0.6, 0.9, -0.2]
    part.importance[:4] = torch.tensor(start, dtype=torch.float64)
    for rows in ([0, 1], [0, 3], [3, 0]):
        part.on_update(Update(torch.tensor(rows), None))
    assert part.importance[:4].tolist() == start  # nothing is measured yet
    refresh(part, [0, 1], [0.9, 1.7, 3.1, 3.2])
    expected = moved(rule, start, [0, 1, 0, 3, 3, 0, 0, 1], np.mean([0.1, 0.3, -0.1, 0.8]))
    np.testing.assert_allclose(part.importance[:4], expected, atol=1e-9)
    np.testing.assert_allclose(part.importance[2], start[2], atol=0)
    refresh(part, [2], [0.9, 1.7, 3.1, 3.2])  # what was pending is forgotten
    np.testing.assert_allclose(part.importance[:4], moved(rule, expected, [2], 0.0), atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
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
    part.importance[:4] = torch.tensor([0.5, 0.0, 0.5, 0.5], dtype=torch.float64)
    assert offer(part, 0, 9) == 0  # all equal: the first
    assert float(part.importance[0]) == 0.5  # starts with the mean of the others
    assert [offer(part, 0, 10 + i) for i in range(3)] == [2, 3, 0]  # 0 went to the end of the list
    part.importance[3] = 0.4
    assert offer(part, 0, 20) == 3  # the lowest before the first


def test_class_counts_do_not_depend_on_importance(make_context, offer):
    """CLIB's policy, whatever the losses say, and that of GDumb and RM hold the same classes at each step."""
    rng = np.random.default_rng(4)
    parts = [Importance(), Importance(rule="released"), Importance(decrease="running"), Balanced()]
    for capacity in (1, 3, 10):
        at_work = [part.attach(make_context(capacity, rows=6)) for part in parts]
        for n, label in enumerate(rng.choice(6, 60, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.05]).tolist()):
            held = []
            for part in at_work:
                offer(part, label, n)
                size = part.context.memory.size
                if isinstance(part, Importance):
                    refresh(part, rng.choice(size, min(2, size), replace=False).tolist(), rng.random(size).tolist())
                held.append(np.bincount(part.context.memory.labels[:size], minlength=6).tolist())
            assert all(counts == held[0] for counts in held)
            assert sum(held[0]) == min(n + 1, capacity)
    assert len({tuple(part.context.memory.images.flatten().tolist()) for part in at_work}) > 1  # only members differ


def learner_of(admission, memory=30):
    chosen = dataclasses.replace(clib(Hyperparameters(batch=8)), admission=admission, schedule=Constant())
    return Learner(
        chosen, image=(1, 8, 8), classes=3, memory=memory, network="convnet", augment=Augment(pad=2, flip=True)
    )


def test_importance_is_measured_on_plain_images_in_eval_mode():
    rng = np.random.default_rng(5)
    learner = learner_of(Importance(), memory=12)
    for n in range(20):
        learner.observe(rng.integers(0, 256, (1, 8, 8), dtype=np.uint8), n % 3)
        network, memory = learner.context.network.eval(), learner.context.memory
        size = memory.size
        with torch.no_grad():
            logits = network((memory.images[:size].float() / 255 - 0.5) / 0.25)
        expected = F.cross_entropy(logits, memory.labels[:size], reduction="none").double()
        torch.testing.assert_close(learner.method.admission.measured[:size], expected, rtol=1e-4, atol=1e-5)


def test_measuring_leaves_training_alone():
    """Until the memory is full a policy without a loss pass takes the same course, batch norm's statistics too."""
    rng = np.random.default_rng(6)
    measured, plain = learner_of(Importance()), learner_of(Balanced())
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
