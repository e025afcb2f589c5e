from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iblurry.engine.eager import Eager
from iblurry.parts import Reservoir
from iblurry.parts.context import Context
from iblurry.parts.memory import Memory
from iblurry.rng import Rng


def walk(capacity, samples, rng):
    """Which sample sits in each row after `samples` offers; images are not needed for that."""
    part = Reservoir()
    memory, engine = Memory(capacity, (1, 1, 1)), Eager()
    part.context = Context(network=None, memory=memory, pipeline=None, rng=rng, engine=engine, budget=capacity)
    kept = list(range(capacity))
    for n in range(1, samples + 1):
        part.context.memory.offered = n
        if n > capacity:
            row = int(part.choose_row(None))
            if row < capacity:
                kept[row] = n - 1
            else:
                assert row == int(part.context.memory.discard)
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
    part = Reservoir()
    for seed in range(runs):
        memory = Memory(capacity, (1, 1, 1))
        both = {"rng": Rng(seed), "engine": Eager()}
        part.context = Context(network=None, memory=memory, pipeline=None, budget=capacity, **both)
        for memory.offered in range(capacity + 1, samples + 1):
            inserted += int(part.choose_row(None)) < capacity
    assert abs(inserted / runs - expected) < 5 * np.sqrt(sum(p * (1 - p) for p in chances) / runs)


@settings(max_examples=50)
@given(capacity=st.integers(1, 20), samples=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_kept_samples_are_different_and_were_offered(capacity, samples, seed):
    kept = walk(capacity, samples, Rng(seed))
    assert len(set(kept)) == capacity
    assert max(kept) < max(samples, capacity)
