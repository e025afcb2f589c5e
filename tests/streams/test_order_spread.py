"""How far the counts of an i-Blurry order may stray, over many seeds."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iblurry.rng import Rng
from iblurry.streams import order as order_module
from iblurry.streams.order import i_blurry, stratified_subset

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())["split_counts"]
CIFAR10 = np.tile(np.arange(10), 5000)
CIFAR100 = np.tile(np.arange(100), 500)


@pytest.mark.parametrize("size, blur, pooled", [(5000, 10, 500), (333, 10, 33), (333, 30, 99), (7, 100, 7), (7, 1, 0)])
def test_a_task_gives_the_whole_part_of_its_share(size, blur, pooled):
    own = np.arange(100, 100 + size)
    given, kept = order_module._divide(own, Fraction(blur), Rng(1), 0)
    assert len(given) == pooled == blur * size // 100
    assert sorted([*given, *kept]) == own.tolist()


@pytest.mark.parametrize("fact", GOLDEN, ids=lambda f: f"{f['C']}-{f['N']}-{f['M']}-{f['T']}")
def test_pools_and_minor_counts_of_the_worked_numbers(fact):
    C, T, M = fact["C"], fact["T"], fact["M"]
    labels = np.tile(np.arange(C), fact["samples_per_class"])
    order = i_blurry(labels, tasks=T, disjoint=fact["N"], blur=M, seed=6, mode="compatible")
    assert C - len(order.classes) == fact["leftover_classes"]
    blurry = order.counts(labels)[order.disjoint :]
    pools = [len(order_module._divide(np.arange(size), Fraction(M), Rng(6), 0)[0]) for size in blurry.sum(axis=0)]
    assert pools == [fact["pooled_per_task"]] * T
    assert sum(pools) == fact["pooled_total"]
    if len(blurry):
        minor = blurry[blurry < blurry.max(axis=1, keepdims=True)]
        expected = fact["expected_minor_count_per_class_per_other_task"]
        assert minor.mean() == pytest.approx(expected, abs=5 * np.sqrt(expected / len(minor)))


@pytest.mark.parametrize("seed", range(1, 9))
def test_flows_between_tasks(seed):
    """500 of 5000 blurry samples are pooled per task; 100 of them reach each task, give or take five deviations."""
    counts = i_blurry(CIFAR10, seed=seed).counts(CIFAR10)[5:]  # one blurry class per task
    assert (counts.sum(axis=0) == 5000).all()
    away = counts[~np.eye(5, dtype=bool)]
    assert (np.abs(away - 100) <= 40).all()
    assert (counts.sum(axis=1) - np.diag(counts) <= 500).all()  # no more leave than were pooled
    assert len(np.unique(away)) > 5, "drawn, not fixed"


# The deviation of a major count, b majors and k pooled per task: k/b * ((1 - 1/T)^2 (1 - 1/b)(1 - M) + (1 - 1/T)/T).
@pytest.mark.parametrize(
    "labels, disjoint, quoted, formula",
    [
        (CIFAR10, 0, 14, np.sqrt(500 * (0.64 * 0.5 * 0.9 + 0.16))),
        (CIFAR10, 50, 8, np.sqrt(500 * 0.16)),
        (CIFAR100, 50, 5.8, np.sqrt(50 * (0.64 * 0.9 * 0.9 + 0.16))),
    ],
    ids=["cifar10, N=0", "cifar10, N=50", "cifar100, N=50"],
)
def test_major_counts_spread_as_the_rule_says(labels, disjoint, quoted, formula):
    majors = []
    for seed in range(12):
        order = i_blurry(labels, disjoint=disjoint, seed=seed)
        majors += order.counts(labels).max(axis=1)[order.disjoint :].tolist()
    strayed = np.array(majors) - 0.92 * len(labels) / len(order.classes)
    assert formula == pytest.approx(quoted, rel=0.12)
    assert (np.abs(strayed) <= 5 * quoted).all()
    assert abs(strayed.mean()) < 4 * formula / np.sqrt(len(majors))
    assert strayed.std() == pytest.approx(formula, rel=5 / np.sqrt(2 * len(majors)))


SKEWED = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 5], [100, 37, 9, 1]))


@pytest.mark.parametrize("share, counts", [(0.1, [10, 3, 1, 1]), (0.29, [29, 10, 2, 1]), (1.0, [100, 37, 9, 1])])
def test_the_floor_of_each_class_and_at_least_one(share, counts):
    kept = stratified_subset(SKEWED, share, seed=3)
    assert [int((SKEWED[kept] == c).sum()) for c in (0, 1, 2, 5)] == counts
    assert np.array_equal(kept, np.unique(kept))


@given(st.floats(0.001, 1), st.floats(0.001, 1), st.integers(0, 9))
def test_a_smaller_share_is_part_of_a_larger_one(one, other, seed):
    small, large = (set(stratified_subset(SKEWED, share, seed=seed).tolist()) for share in sorted((one, other)))
    assert small <= large


def test_which_ones_the_seed_decides():
    drawn = [stratified_subset(SKEWED, 0.5, seed=seed).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    times = np.zeros(len(SKEWED))
    for seed in range(400):
        times[stratified_subset(SKEWED, 0.25, seed=seed)] += 1
    often = times[SKEWED == 0] / 400  # each of a hundred, a quarter of the time: five standard deviations
    assert np.abs(often - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 400)
