from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from iblurry.rng import BLOCK, Rng


@given(seed=st.integers(0, 2**40), step=st.integers(0, 10**9), n=st.integers(1, 2 * BLOCK))
def test_uniforms_depend_on_seed_purpose_and_step_alone(seed, step, n):
    used = Rng(seed)
    used.uniforms("other", step, n)
    used.uniforms("purpose", step + 3, n)
    drawn = used.uniforms("purpose", step, n).copy()
    assert drawn.shape == (n,)
    assert (drawn == Rng(seed).uniforms("purpose", step, n)).all()
    assert ((drawn >= 0) & (drawn < 1)).all()


def test_seeds_purposes_and_steps_give_other_numbers():
    base = Rng(1).uniforms("a", 5, 64)
    for other in (
        Rng(2).uniforms("a", 5, 64),
        Rng(1).uniforms("b", 5, 64),
        Rng(1).uniforms("a", 6, 64),
        Rng(1).uniforms("a", 5, 68)[:64],
    ):
        assert not (base == other).any()


def test_steps_do_not_overlap_across_blocks():
    draws = np.concatenate([Rng(3).uniforms("x", step, 7) for step in range(2 * BLOCK // 7)])
    assert len(np.unique(draws)) == len(draws)


def test_uniforms_are_uniform():
    draws = np.concatenate([Rng(3).uniforms("x", step, 100) for step in range(1000)])
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert (abs(counts - 5000) < 5 * np.sqrt(5000)).all()


@given(n=st.integers(1, 40), extra=st.integers(0, 40), step=st.integers(0, 1000))
def test_a_sample_without_replacement_is_distinct_and_in_range(n, extra, step):
    chosen = Rng(1).sample_without_replacement("rows", step, n, population=n + extra)
    assert len(set(chosen)) == n
    assert all(0 <= c < n + extra for c in chosen)


@pytest.mark.slow
def test_a_sample_without_replacement_takes_each_number_equally_often():
    counts = np.zeros(10)
    for step in range(5000):
        counts[Rng(7).sample_without_replacement("rows", step, 3, population=10)] += 1
    assert (abs(counts - 1500) < 5 * np.sqrt(1500 * 0.7)).all()


def test_a_permutation_permutes_and_an_integer_stays_below():
    assert sorted(Rng(1).permutation("p", 0, 50).tolist()) == list(range(50))
    assert {Rng(1).integer("b", step, 3) for step in range(100)} == {0, 1, 2}
