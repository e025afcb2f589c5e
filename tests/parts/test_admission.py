"""Admission by chance and by class: the reservoir's law, and the class counts of CLIB, GDumb and RM."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F

from iblurry.engine.eager import Eager
from iblurry.parts import Balanced, Importance, Reservoir
from iblurry.parts.context import Context, Update
from iblurry.parts.memory import Memory
from iblurry.rng import Rng

# ------------------------------------------------------------------------------------------------ reservoir


def rows_taken(capacity, samples, rng):
    """The row that each sample is given once the memory is full; images are not needed for that."""
    part, memory = Reservoir(), Memory(capacity, (1, 1, 1))
    part.context = Context(network=None, memory=memory, pipeline=None, rng=rng, engine=Eager(), budget=capacity)
    for memory.offered in range(capacity + 1, samples + 1):
        yield memory.offered, int(part.choose_row(None))
    assert int(memory.discard) == capacity


def walk(capacity, samples, rng):
    """Which sample sits in each row after `samples` offers."""
    kept = list(range(capacity))
    for n, row in rows_taken(capacity, samples, rng):
        if row != capacity:
            kept[row] = n - 1
    return kept


def test_golden_walk(golden):
    case = golden["reservoir"]
    rng = np.random.RandomState(1)
    draws = {seen: rng.randint(0, seen) for seen in range(case["K"] + 1, case["n"] + 1)}
    assert list(draws.values()) == case["draws"]

    class Loaded(Rng):
        def integer(self, purpose, step, high):
            assert step == high
            return draws[high]

    assert walk(case["K"], case["n"], Loaded(0)) == case["final_memory"]


@pytest.mark.slow
def test_every_sample_is_kept_equally_often(golden):
    capacity, samples, runs = golden["reservoir"]["K"], golden["reservoir"]["n"], 3000
    counts = np.zeros(samples)
    for seed in range(runs):
        counts[walk(capacity, samples, Rng(seed))] += 1
    p = golden["reservoir"]["inclusion_probability"]
    assert p == capacity / samples
    assert (abs(counts / runs - p) < 5 * np.sqrt(p * (1 - p) / runs)).all()


def test_expected_number_of_insertions(golden):
    capacity, samples, runs = golden["reservoir"]["K"], golden["reservoir"]["n"], 500
    chances = [capacity / n for n in range(capacity + 1, samples + 1)]
    expected = golden["reservoir"]["expected_insertions"]
    assert expected == pytest.approx(capacity + sum(chances), abs=1e-9)
    inserted = runs * capacity
    for seed in range(runs):
        inserted += sum(row < capacity for _, row in rows_taken(capacity, samples, Rng(seed)))
    assert abs(inserted / runs - expected) < 5 * np.sqrt(sum(p * (1 - p) for p in chances) / runs)


@settings(max_examples=50)
@given(capacity=st.integers(1, 20), samples=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_kept_samples_are_different_and_were_offered(capacity, samples, seed):
    kept = walk(capacity, samples, Rng(seed))
    assert len(set(kept)) == capacity
    assert max(kept) < max(samples, capacity)


# ------------------------------------------------------------------------------------------------ class balance


def histogram(part, rows=4):
    labels = part.context.memory.labels[:-1]
    return [int((labels == c).sum()) for c in range(rows)]


def fullest_rule(labels, capacity, rows=4):
    """The class counts of 'the fullest class, newcomer counted, earliest on a tie, gives one up', by hand."""
    counts = np.zeros(rows, dtype=int)
    for y in labels:
        if counts.sum() == capacity:
            with_newcomer = counts + (np.arange(rows) == y)
            with_newcomer[counts == 0] = 0  # nobody to give up there
            counts[with_newcomer.argmax()] -= 1
        counts[y] += 1
    return counts.tolist()


def test_class_counts_depend_on_labels_alone_and_are_the_same_for_all_policies(make_context, offer):
    """Whatever the losses of the rows say."""

    @settings(max_examples=25, deadline=None)
    @given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=40), capacity=st.integers(1, 9))
    def check(labels, capacity):
        expected, rng = fullest_rule(labels, capacity), np.random.default_rng(4)
        for part in (Balanced(), Importance(), Importance(rule="released"), Importance(decrease="running")):
            at_work = part.attach(make_context(capacity))
            for i, label in enumerate(labels):
                offer(at_work, label, i)
                if isinstance(part, Importance):
                    size = at_work.context.memory.size
                    losses = F.pad(torch.tensor(rng.random(size)), (0, capacity - size))
                    at_work.on_update(Update(torch.tensor(rng.choice(size, min(2, size), replace=False)), losses))
            assert histogram(at_work) == expected == at_work.counts

    check()


def test_a_tie_goes_to_the_class_met_first(make_context, offer):
    part = Balanced().attach(make_context(4))
    for i, label in enumerate([0, 1, 0, 1, 2]):
        row = offer(part, label, i)
    assert row in (0, 2)  # classes 0 and 1 hold two rows each; a row of class 0 leaves
    assert histogram(part) == [1, 2, 1, 0]


def test_the_member_that_leaves_is_drawn_uniformly(make_context, offer):
    counts, runs, part = np.zeros(5), 1500, Balanced().attach(make_context(5))
    for i in range(5):
        offer(part, 0, i)
    for step in range(runs):
        part.context.memory.offered = 10 + step
        row = int(part.pick(0))
        assert row == part.context.rng.integer("balanced", step=10 + step, high=5)  # the member of that number
        counts[row] += 1
    assert (abs(counts - runs / 5) < 5 * np.sqrt(runs * 0.16)).all()


def test_a_newcomer_always_enters(make_context, offer):
    part = Balanced().attach(make_context(3))
    for i in range(30):
        row = offer(part, i % 2, i)
        assert row < 3
        assert int(part.context.memory.labels[row]) == i % 2
