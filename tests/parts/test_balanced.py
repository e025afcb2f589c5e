from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from iblurry.parts import Balanced, Importance


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


def test_class_counts_depend_on_labels_alone_and_are_the_same_for_both_policies(make_context, offer):
    @settings(max_examples=25, deadline=None)
    @given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=40), capacity=st.integers(1, 9))
    def check(labels, capacity):
        expected = fullest_rule(labels, capacity)
        for part in (Balanced(), Importance()):
            at_work = part.attach(make_context(capacity))
            for i, label in enumerate(labels):
                offer(at_work, label, i)
            assert histogram(at_work) == expected == at_work.counts

    check()


def test_a_tie_goes_to_the_class_met_first(make_context, offer):
    part = Balanced().attach(make_context(4))
    for i, label in enumerate([0, 1, 0, 1, 2]):
        row = offer(part, label, i)
    assert row in (0, 2)  # classes 0 and 1 hold two rows each; a row of class 0 leaves
    assert histogram(part) == [1, 2, 1, 0]


def test_the_member_that_leaves_is_drawn_uniformly(make_context, offer):
    counts = np.zeros(5)
    runs = 1500
    part = Balanced().attach(make_context(5))
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
