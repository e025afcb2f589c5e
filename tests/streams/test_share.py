"""A share of the images: how many of each class, and which."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iblurry.streams.share import a_share

LABELS = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 5], [100, 37, 9, 1]))


@pytest.mark.parametrize("share, counts", [(0.1, [10, 3, 1, 1]), (0.29, [29, 10, 2, 1]), (1.0, [100, 37, 9, 1])])
def test_the_floor_of_each_class_and_at_least_one(share, counts):
    kept = a_share(LABELS, share, seed=3)
    assert [int((LABELS[kept] == c).sum()) for c in (0, 1, 2, 5)] == counts
    assert np.array_equal(kept, np.unique(kept))


@given(st.floats(0.001, 1), st.floats(0.001, 1), st.integers(0, 9))
def test_a_smaller_share_is_part_of_a_larger_one(one, other, seed):
    small, large = (set(a_share(LABELS, share, seed=seed).tolist()) for share in sorted((one, other)))
    assert small <= large


def test_which_ones_the_seed_decides():
    drawn = [a_share(LABELS, 0.5, seed=seed).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    times = np.zeros(len(LABELS))
    for seed in range(400):
        times[a_share(LABELS, 0.25, seed=seed)] += 1
    often = times[LABELS == 0] / 400  # each of a hundred, a quarter of the time: five standard deviations
    assert np.abs(often - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 400)
