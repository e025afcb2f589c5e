"""The i-Blurry order against the rule, the worked numbers and the limits of its randomness."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from iblurry.errors import InputError
from iblurry.rng import Rng
from iblurry.streams.order import Order, i_blurry, stratified_subset

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())["split_counts"]
CIFAR10 = np.tile(np.arange(10), 5000)


def homes(classes, disjoint, tasks):
    """The task of each label, written out one class at a time."""
    alone = [disjoint // tasks + (1 if t < disjoint % tasks else 0) for t in range(tasks)]
    majors = [0] * tasks
    for _ in range(classes - disjoint):
        loads = [a + b for a, b in zip(alone, majors, strict=True)]
        majors[loads.index(min(loads))] += 1
    return [t for t in range(tasks) for _ in range(alone[t])] + [t for t in range(tasks) for _ in range(majors[t])]


@pytest.mark.parametrize("fact", GOLDEN, ids=lambda f: f"{f['C']}-{f['N']}-{f['M']}-{f['T']}")
@pytest.mark.parametrize("seed", [1, 2])
def test_worked_numbers(fact, seed):
    C, N, M, T = fact["C"], fact["N"], fact["M"], fact["T"]
    labels = np.tile(np.arange(C), fact["samples_per_class"])
    mode = "compatible" if (C, N) in {(10, 25), (10, 75)} else "strict"
    order = i_blurry(labels, tasks=T, disjoint=N, blur=M, seed=seed, mode=mode)
    counts = order.counts(labels)
    D, B = fact["disjoint_classes"], fact["blurry_classes"]

    assert sorted(order.indices.tolist()) == list(range(len(labels)))
    assert order.disjoint == D
    assert (len(order.classes), C - len(order.classes)) == (D + B, fact["leftover_classes"])
    assert [len(task) for task in order.tasks] == [fact["task_size"]] * T
    assert order.ends == tuple(fact["task_size"] * (t + 1) for t in range(T))
    assert (counts[D:].sum(axis=0) == fact["blurry_samples_per_task"]).all()
    for label in range(D):
        expected = np.zeros(T)
        expected[label // fact["disjoint_per_task"]] = fact["samples_per_class"]
        assert counts[label].tolist() == expected.tolist()
    if not B:
        return
    per_task = fact["blurry_major_per_task"]
    assert order.majors(labels)[D:].tolist() == [label // per_task for label in range(B)]
    k, share = fact["pooled_per_task"], M / 100
    flow = counts[D:].reshape(T, per_task, T).sum(axis=1)  # from the major task to where they are met
    away = flow[~np.eye(T, dtype=bool)]
    assert (np.abs(away - k / T) <= 5 * np.sqrt(k / T) * (1 - 1 / T)).all()
    own = counts[np.arange(D, D + B), np.arange(B) // per_task]
    given_by_class = k / per_task  # expected; its variance is that of drawing without replacement
    spread = given_by_class * ((1 - 1 / T) ** 2 * (1 - 1 / per_task) * (1 - share) + (1 / T) * (1 - 1 / T))
    assert (np.abs(own - fact["expected_major_count_per_class"]) <= 5 * np.sqrt(spread)).all()
    assert len(set(own.tolist())) > 1, "counts are drawn, not fixed"
    assert fact["pooled_total"] == T * k
    minor, expected = away.mean() / per_task, fact["expected_minor_count_per_class_per_other_task"]
    assert minor == pytest.approx(expected, abs=5 * np.sqrt(expected / away.size / per_task))


@pytest.mark.parametrize(
    "mode, disjoint, alone, majors",  # classes of each task
    [
        ("strict", 25, [1, 1], [3, 3]),
        ("uneven", 45, [2, 1], [2, 3]),  # floor(3.6) = 3; the fifth blurry one goes to the first with the fewest
        ("compatible", 45, [1, 1], [3, 3]),
    ],
)
def test_i_blurry_recomputed(mode, disjoint, alone, majors):
    """Sample by sample from the permutations; a third of 24 or 25 blurry samples and more are pooled."""
    labels, rng = np.repeat(np.arange(8), [5, 8, 9, 4, 11, 6, 7, 10]), Rng(6)
    order = i_blurry(labels, tasks=2, disjoint=disjoint, blur=35, seed=6, mode=mode)

    def shuffled(values, purpose):
        return [values[i] for i in rng.permutation(purpose, 0, len(values))]

    classes = shuffled(list(range(8)), "split.classes")
    assert (order.classes, order.disjoint) == (tuple(classes), sum(alone))
    own = {c: np.flatnonzero(labels == c).tolist() for c in classes}
    left = iter(classes)
    kept = [[k for _ in range(count) for k in own[next(left)]] for count in alone]
    majored = [[k for _ in range(count) for k in own[next(left)]] for count in majors]
    blurry = [shuffled(samples, f"split.major.{t}") for t, samples in enumerate(majored)]
    given = [samples[: 35 * len(samples) // 100] for samples in blurry]
    pool = given[0] + given[1]
    pool = shuffled(pool, f"split.pool.{len(pool)}")
    half = len(pool) // 2 if mode == "compatible" else len(given[0])
    returned = [pool[:half], pool[half : 2 * half] if mode == "compatible" else pool[half:]]
    for t, task in enumerate(order.tasks):
        mine = blurry[t][len(given[t]) :] + returned[t] + kept[t]
        assert task.tolist() == shuffled(mine, f"split.task.{t}")


def moved(order, labels):
    major = dict(zip(order.classes, order.majors(labels).tolist(), strict=True))
    return {int(i) for t, task in enumerate(order.tasks) for i in task if major[int(labels[i])] != t}


def test_a_smaller_pool_is_part_of_a_larger_one():
    few, many = (moved(i_blurry(CIFAR10, blur=m, seed=4), CIFAR10) for m in (10, 30))
    # All of `few` is in the larger pool, of which 4 in 5 end in another task; fresh draws would share 24 %.
    assert 0.76 < len(few & many) / len(few) < 0.84


def test_class_order_depends_on_the_seed_only():
    base = i_blurry(CIFAR10, seed=5).classes
    others = [
        i_blurry(CIFAR10, seed=5, disjoint=0).classes,
        i_blurry(CIFAR10, seed=5, blur=50, tasks=1).classes,
        i_blurry(CIFAR10, seed=5, disjoint=75, mode="uneven").classes,
        i_blurry(CIFAR10, seed=5, blur=0).classes,
        i_blurry(CIFAR10[:999], seed=5).classes,
    ]
    assert all(other == base for other in others)
    assert len({i_blurry(CIFAR10[:100], seed=s).classes for s in range(20)}) == 20


def test_no_blur_and_all_disjoint_are_one_split():
    expected = i_blurry(CIFAR10, disjoint=100, blur=0, seed=2)
    assert expected.disjoint == 10
    assert expected == i_blurry(CIFAR10, disjoint=100, blur=30, seed=2)
    assert expected == i_blurry(CIFAR10, disjoint=50, blur=0, seed=2)
    assert expected == i_blurry(CIFAR10, disjoint=75, blur=0, seed=2)  # would not fit, but is never asked to
    assert expected != i_blurry(CIFAR10, disjoint=100, blur=0, seed=3)


def test_three_modes_where_it_does_not_fit():
    uneven = i_blurry(CIFAR10, disjoint=75, mode="uneven")
    assert uneven.disjoint == 7
    assert uneven.majors(CIFAR10).tolist() == [0, 0, 1, 1, 2, 3, 4, 2, 3, 4]
    assert sorted(uneven.indices.tolist()) == list(range(50_000))
    assert i_blurry(CIFAR10, disjoint=75, mode="compatible") == i_blurry(CIFAR10, disjoint=50)


def test_whole_numbers_of_any_type():
    assert i_blurry(CIFAR10, tasks=np.int64(5), disjoint=np.float32(50), blur=10.0) == i_blurry(
        CIFAR10.astype(np.uint8)
    )
    assert i_blurry(CIFAR10, tasks=5.0) == i_blurry(CIFAR10.tolist())


def test_percentages_are_exact():
    labels = np.repeat(np.arange(3), 10)
    assert i_blurry(labels, tasks=1, disjoint=Fraction(100, 3)).disjoint == 1
    assert i_blurry(np.repeat(np.arange(1000), 2), tasks=1, disjoint=0.1).disjoint == 1
    assert i_blurry(labels, tasks=3, disjoint=0, blur=29) == i_blurry(labels, tasks=3, disjoint=0, blur=Fraction(29))
    # 29 % of 100 are 29 (0.29 * 100 is less in floating point) and of 107 are 31: 60 pooled, 30 back to either task.
    order = i_blurry(np.repeat([0, 1], [100, 107]), tasks=2, disjoint=0, blur=29, mode="compatible")
    assert {len(task) for task in order.tasks} == {100 - 29 + 30, 107 - 31 + 30}


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    seed=st.integers(-(2**31), 2**63),
    n=st.integers(0, 100),
    m=st.one_of(st.integers(0, 100), st.floats(0, 100)),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_nothing_is_lost(sizes, seed, n, m, data):
    tasks = data.draw(st.integers(1, len(sizes)))
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    before = labels.copy()
    order = i_blurry(labels, tasks=tasks, disjoint=n, blur=m, seed=seed, mode="uneven")
    D = len(sizes) if n == 100 or m == 0 else len(sizes) * n // 100
    home = homes(len(sizes), D, tasks)

    assert order == i_blurry(labels, tasks=tasks, disjoint=n, blur=m, seed=seed, mode="uneven")
    assert (labels == before).all()
    assert sorted(order.indices.tolist()) == list(range(len(labels)))
    assert sorted(order.classes) == list(range(len(sizes)))
    assert order.roles == ("disjoint",) * D + ("blurry",) * (len(sizes) - D)
    counts = order.counts(labels)
    for label, c in enumerate(order.classes):
        assert counts[label].sum() == sizes[c]
        if label < D:
            assert counts[label, home[label]] == sizes[c]
    expected = [sum(sizes[c] for c, h in zip(order.classes, home, strict=True) if h == t) for t in range(tasks)]
    assert [len(task) for task in order.tasks] == expected
    fits = len(sizes) == D or (len(sizes) * n) % 100 == 0
    if fits and len(sizes) % tasks == 0 and D % tasks == 0:
        assert order == i_blurry(labels, tasks=tasks, disjoint=n, blur=m, seed=seed)
        if len(set(sizes)) == 1:  # else the pool need not divide by the tasks
            assert order == i_blurry(labels, tasks=tasks, disjoint=n, blur=m, seed=seed, mode="compatible")


@given(st.lists(st.integers(2, 20), min_size=1, max_size=12), st.integers(0, 100), st.integers(0, 90), st.data())
@settings(max_examples=60, deadline=None)
def test_compatible_counts(sizes, n, m, data):
    T, C = data.draw(st.integers(1, len(sizes))), len(sizes)
    labels = np.repeat(np.arange(C), sizes)
    order = i_blurry(labels, tasks=T, disjoint=n, blur=m, mode="compatible")
    whole = 100 if m == 0 else n
    D = T * (C * whole // (100 * T))
    assert order.disjoint == D
    assert len(order.classes) == D + T * ((C - D) // T)
    assert len(np.unique(order.indices)) == len(order)


@pytest.mark.parametrize(
    "change, named",
    [
        ({"disjoint": -1}, "disjoint=-1"),
        ({"disjoint": 100.5}, "disjoint=100.5"),
        ({"blur": 101}, "blur=101"),
        ({"blur": float("nan")}, "blur=nan"),
        ({"tasks": 0}, "tasks=0.* 1 to 10"),
        ({"tasks": 11, "mode": "uneven"}, "tasks=11.* 1 to 10"),
        ({"tasks": 2.5}, "tasks=2.5"),
        ({"tasks": 4}, r"tasks=4.*\(1, 2, 5, 10\)"),
        ({"disjoint": 20}, "disjoint=20.* 0, or"),
        ({"disjoint": 75}, "disjoint=75.* 50 or 100,"),
        ({"disjoint": 12.5, "tasks": 1}, "1.25 of 10.* 10, or"),
        ({"mode": "unevn"}, "'uneven'"),
    ],
)
def test_numbers_that_cannot_be(change, named):
    with pytest.raises(InputError, match=named):
        i_blurry(np.tile(np.arange(10), 5), **change)


def test_the_nearest_share_can_be_typed():
    with pytest.raises(InputError, match=" 0, or"):  # not 33.3333, which is no third
        i_blurry([0, 1, 2], tasks=1, disjoint=40)


@pytest.mark.parametrize("labels", [[], [[0, 1]], [0.5], ["cat"], [0, -1]])
def test_labels_that_cannot_be(labels):
    with pytest.raises(InputError, match="labels"):
        i_blurry(labels, tasks=1)


@pytest.mark.parametrize(
    "tasks, classes, disjoint",
    [
        ((), (0,), 0),
        (([0], []), (0,), 0),
        (([0, 1], [1]), (0,), 0),
        (([-1],), (0,), 0),
        (([0],), (0, 0), 0),
        (([0],), (0,), 2),
    ],
)
def test_orders_that_cannot_be(tasks, classes, disjoint):
    with pytest.raises(InputError):
        Order(tuple(np.array(task, dtype=np.int64) for task in tasks), classes, disjoint)


def test_an_order_is_a_value():
    mine = np.array([2, 0])
    order = Order((mine, np.array([1])), (1, 0), 1)
    mine[0] = 0
    assert order.indices.tolist() == [2, 0, 1]
    assert order.ends == (2, 3)
    assert len(order) == 3
    assert order == Order((np.array([2, 0]), np.array([1])), (1, 0), 1)
    assert order != Order((np.array([2]), np.array([0, 1])), (1, 0), 1)
    assert order != Order((np.array([2, 0]), np.array([1])), (0, 1), 1)
    assert order != "order"
    with pytest.raises(ValueError, match="read-only"):
        order.tasks[0][0] = 1
    with pytest.raises(ValueError, match="read-only"):
        order.indices[0] = 1


def test_counts_need_the_labels_of_the_order():
    order = Order((np.array([2, 0]), np.array([1])), (1, 0), 0)
    assert order.counts([0, 1, 1]).tolist() == [[1, 1], [1, 0]]
    for wrong in ([0, 1], [0, 1, 2]):
        with pytest.raises(InputError):
            order.counts(wrong)


def test_an_order_of_indices():
    order = Order.from_indices([4, 0, 1, 2], [0, 0, 1, 1, 2], ends=[2, 4])
    assert (order.classes, order.roles) == ((1, 2, 0), ("disjoint", "disjoint", "blurry"))
    assert order.only(np.array([0, 1])).indices.tolist() == [0, 1]


SKEWED = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 5], [100, 37, 9, 1]))


@pytest.mark.parametrize("share, counts", [(0.1, [10, 3, 1, 1]), (0.29, [29, 10, 2, 1]), (1.0, [100, 37, 9, 1])])
def test_a_share_has_the_floor_of_each_class_and_at_least_one(share, counts):
    kept, smaller = (stratified_subset(SKEWED, one, seed=3) for one in (share, share / 2))
    assert [int((SKEWED[kept] == c).sum()) for c in (0, 1, 2, 5)] == counts
    assert np.array_equal(kept, np.unique(kept))
    assert set(smaller.tolist()) <= set(kept.tolist())
    assert share == 1 or kept.tolist() != stratified_subset(SKEWED, share, seed=4).tolist()
