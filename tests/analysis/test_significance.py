"""Pairs over seeds: the same numbers as scipy.stats, and no more said than so few seeds can tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from iblurry.analysis.significance import (
    MOST,
    caveats,
    compare_rows,
    compare_seeds,
    least_p,
    sign_flip_p,
    t_interval,
)
from iblurry.errors import InputError, UnknownNameError
from tests.studies.written import TINY, tabulated

POINTS = st.integers(-3000, 3000).map(lambda hundredths: hundredths / 100)


@settings(max_examples=60, deadline=None)
@given(st.lists(POINTS, min_size=2, max_size=7).filter(lambda values: len(set(values)) > 1))
def test_the_interval_is_that_of_scipy(values):
    low, high = t_interval(values)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (low, high) == (pytest.approx(theirs.low), pytest.approx(theirs.high))


@settings(max_examples=60, deadline=None)
@given(st.lists(POINTS, min_size=2, max_size=7))
def test_p_is_that_of_scipy(values):
    """Its two-sided p is twice the smaller side, so it is the same unless the mean is 0."""
    theirs = stats.permutation_test(
        (np.array(values), np.zeros(len(values))),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert sign_flip_p(values) == pytest.approx(theirs.pvalue)


def test_p_counted_by_hand():
    assert sign_flip_p([1, 2, 4]) == 2 / 8  # only +++ and --- reach 7
    assert sign_flip_p([-1, 2, 4]) == 4 / 8  # 5 and 7 with either sign
    assert sign_flip_p([0.1, 0.2, -0.3]) == 1  # a mean of 0 is no evidence, last bits or not
    assert sign_flip_p([0.0, 3.0]) == 1
    assert sign_flip_p([0.1, 0.2, -0.3, 0.05]) == 1  # no sum is nearer to 0 than 0.05, though some seem to be


@pytest.mark.parametrize("n", range(2, 9))
def test_the_least_p_is_reached_and_six_seeds_are_needed(n):
    assert sign_flip_p(np.linspace(1, 2, n)) == least_p(n) == 2 / 2**n
    assert (least_p(n) <= 0.05) == (n >= 6)


def test_too_many_seeds_for_the_exact_test():
    with pytest.raises(InputError, match=f"{MOST} seeds, not 25"):
        sign_flip_p([1.0] * 25)


def test_only_seeds_that_both_have():
    one = compare_seeds({1: 70, 2: 71, 3: 75, 9: 0}, {3: 61, 2: 57, 1: 57, 4: 99})
    assert (one.seeds, one.differences, one.n, one.ahead, one.even) == ((1, 2, 3), (13, 14, 14), 3, 3, 0)
    assert one.mean == pytest.approx(41 / 3)
    assert one.std == pytest.approx(np.sqrt(((np.array([13, 14, 14]) - 41 / 3) ** 2).sum() / 2))
    theirs = stats.ttest_rel([70, 71, 75], [57, 57, 61]).confidence_interval(0.95)
    assert one.interval == (pytest.approx(theirs.low), pytest.approx(theirs.high))
    assert one.describe() == (
        "ahead on 3 of 3 seeds, +13.67 ± 0.58 points, 95 % t interval [+12.23, +15.10], sign-flip p 0.25; "
        "3 seeds cannot tell more"
    )


def test_words():
    assert (
        compare_seeds({1: 5, 2: 5}, {1: 5, 2: 4})
        .describe()
        .startswith("ahead on 1 of 2 seeds, even on 1, +0.50 ± 0.71 points,")
    )
    assert compare_seeds({1: 5}, {2: 4}).describe() == "no seed in common"
    less = compare_seeds({1: 20, 2: 30}, {1: 25, 2: 29}, lower=True)
    assert (less.ahead, less.differences) == (1, (-5, 1))
    split = compare_seeds({1: 5, 2: 6, 3: 9}, {1: 6, 2: 4, 3: 5}).describe()  # p 0.5: three seeds could have told more
    assert split.endswith("sign-flip p 0.5")
    six = compare_seeds(dict(enumerate([2.0, 3, 4, 5, 6, 7])), dict.fromkeys(range(6), 1.0))
    assert six.describe().endswith("sign-flip p 0.031")  # six can tell


def test_the_best_over_each_other(table):
    assert [(p.column, p.metric, p.first, p.second) for p in compare_rows(table)] == [
        ("K=500", "a_auc", "clib", "er"),
        ("K=1000", "a_auc", "clib", "mir"),
    ]
    first, second = compare_rows(table)
    assert first.differences == pytest.approx((13, 13.5, 14))
    assert second.seeds == (1, 2)


def test_each_other_over_one(table):
    assert [(p.column, p.first, p.second, p.ahead) for p in compare_rows(table, "er")] == [("K=500", "clib", "er", 3)]
    assert [(p.first, p.second, p.ahead) for p in compare_rows(table, "clib")] == [
        ("er", "clib", 0),
        ("mir", "clib", 0),
    ]


def test_against_what_is_not_there(table, runs):
    with pytest.raises(UnknownNameError, match=r"'clob'.*'clib'"):
        compare_rows(table, "clob")
    empty = tabulated(TINY, "cifar10", [])
    with pytest.raises(InputError, match="--against er"):
        compare_rows(empty, "er")
    assert compare_rows(empty) == []
    assert len(caveats([])) == 1
    others = tabulated(TINY, "cifar10", [runs], methods=["gdumb", "er", "clib"])
    with pytest.raises(InputError, match=r"--against gdumb.*er, clib"):
        compare_rows(others, "gdumb")
