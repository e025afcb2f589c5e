"""Gaussian, Si-Blurry, sigmoid and domain streams: their formulas, recomputed, and what holds for any data and seed."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from iblurry import Domains, Gaussian, IBlurry, Rng, SiBlurry, Sigmoid, Stream, load
from iblurry.components.edit import component
from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.errors import DataError, InputError
from tests.experiment.small import DATA


def labelled(labels):
    labels = np.array(labels, dtype=np.int64)
    part = LabelledImages(np.zeros((len(labels), 1, 1, 1), dtype=np.uint8), labels)
    return Dataset("own", tuple(f"c{c}" for c in range(labels.max() + 1)), part, part, (0.5,), (0.5,))


def equal(classes, each):
    return labelled(np.tile(np.arange(classes), each))


# Classes of any size, in any order.
LABELS = st.lists(st.integers(1, 12), min_size=4, max_size=9).flatmap(
    lambda sizes: st.permutations([c for c, size in enumerate(sizes) for _ in range(size)])
)
PERCENT = st.sampled_from([0.0, 10.0, 33.3, 50.0, 100.0])
STREAMS = st.one_of(
    st.builds(Gaussian, sigma=st.sampled_from([0.0, 0.1, 1.0, 9.99]), periods=st.integers(1, 5)),
    st.builds(Gaussian, periods=st.integers(1, 5), initial=st.floats(0, 1)),
    st.builds(SiBlurry, tasks=st.integers(1, 4), disjoint=PERCENT, blur=PERCENT),
    st.builds(Sigmoid, tasks=st.integers(1, 4), width=st.floats(0, 1)),
)


@given(STREAMS, LABELS, st.integers(0, 50))
@settings(max_examples=100, deadline=None)
def test_any_stream_of_any_data(stream, labels, seed):
    data = labelled(labels)
    try:
        order = stream.order(data, seed)
    except InputError:
        assert isinstance(stream, Gaussian)  # every sample was drawn before its class enters
        assert stream.initial < 1
        return
    ids = data.train.labels
    assert order == stream.order(data, seed)
    assert len(set(order.indices.tolist())) == len(order)
    assert order.counts(ids).sum() == len(order)  # every class that occurs is named
    if isinstance(stream, SiBlurry):
        kept = np.isin(ids, order.classes)
        assert len(order) == kept.sum()
        assert len(order.classes) % stream.tasks == 0
        assert ((order.counts(ids)[: order.disjoint] > 0).sum(axis=1) == 1).all()
    elif isinstance(stream, Sigmoid) or stream.initial == 1:
        assert len(order) == len(ids)
    again = Stream.from_json(json.loads(json.dumps(stream.to_json())))
    assert again == stream


@pytest.mark.parametrize("stream", [Gaussian(), Gaussian(sigma=0), SiBlurry(), Sigmoid(), Domains(domains=[0, 1] * 50)])
def test_the_seed_decides(stream):
    data = equal(10, 10)
    one, other = stream.order(data, 1), stream.order(data, 2)
    assert not np.array_equal(one.indices, other.indices)


def test_gaussian_times():
    """The order recomputed sample by sample from the uniforms."""
    data, rng, sigma, periods = equal(4, 25), Rng(3), 0.2, 3
    order = Gaussian(sigma=sigma, periods=periods).order(data, 3)
    places = rng.permutation("gaussian.classes", 0, 4).tolist()
    u, v = rng.uniforms("gaussian.times", 0, 200).reshape(2, 100).tolist()
    p = (rng.uniforms("gaussian.periods", 0, 100) * periods).astype(int).tolist()
    normal = [math.sqrt(-2 * math.log(1 - a)) * math.cos(2 * math.pi * b) for a, b in zip(u, v, strict=True)]
    time = [places.index(k % 4) / 4 + sigma * z + q for k, (z, q) in enumerate(zip(normal, p, strict=True))]
    assert order.indices.tolist() == sorted(range(100), key=time.__getitem__)
    assert [all(int(max(0, min(time[k], 2.9))) == t for k in task) for t, task in enumerate(order.tasks)] == [True] * 3
    assert order.classes == tuple(places)


@pytest.mark.parametrize("periods", [1, 3])
def test_gaussian_without_width_recomputed(periods):
    data, rng = equal(7, 12), Rng(2)
    order = Gaussian(sigma=0, periods=periods).order(data, 2)
    places = rng.permutation("gaussian.classes", 0, 7).tolist()
    period = (rng.uniforms("gaussian.periods", 0, 84) * periods).astype(int)
    time = [(5 * places.index(k % 7) // 7 / 5 + period[k]) for k in range(84)]
    ties = np.argsort(rng.permutation("gaussian.ties", 0, 84))
    assert order.indices.tolist() == sorted(range(84), key=lambda k: (time[k], ties[k]))
    assert order.ends == tuple(sum(t < end for t in time) for end in range(1, periods + 1))
    assert (order.classes, order.disjoint) == (tuple(places), 0)


def test_gaussian_classes_enter_with_the_periods():
    data = equal(10, 300)
    whole = Gaussian(sigma=0.001, periods=4).order(data, 1)
    order = Gaussian(sigma=0.001, periods=4, initial=0.6).order(data, 1)
    met = [np.count_nonzero(row) for row in order.counts(data.train.labels).T]
    assert met == [round(10 * (0.6 + 0.4 * (p + 1) / 4)) for p in range(4)] == [7, 8, 9, 10]
    assert (
        order
        == dataclasses.replace(  # the same, without what came too early
            whole,
            tasks=tuple(
                task[np.isin(data.train.labels[task], whole.classes[:n])]
                for task, n in zip(whole.tasks, met, strict=True)
            ),
        )
    )


def test_si_blurry_recomputed():
    rng, sizes, tasks = Rng(4), [5, 30, 12, 8, 21, 3, 40, 9], 3
    data = labelled(np.repeat(np.arange(8), sizes))
    order = SiBlurry(tasks=tasks, disjoint=50, blur=20).order(data, 4)
    shuffled = rng.permutation("si_blurry.classes", 0, 8).tolist()
    disjoint, blurry = shuffled[:3], shuffled[3:6]  # 4 of 8 are disjoint, 3 of them fit; of 5 others again 3
    assert (order.classes, order.disjoint) == (tuple(shuffled[:6]), 3)

    def parts(purpose, values):
        cuts = sorted(int(u * len(values)) for u in rng.uniforms(purpose, 0, tasks - 1))
        return [values[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]

    pool_size = sum(sizes[c] for c in blurry) * 20 // 100
    quotas = [len(part) for part in parts("si_blurry.quotas", range(pool_size))]
    own = [[k for k, c in enumerate(data.train.labels) if c in part] for part in parts("si_blurry.blurry", blurry)]
    given = [k for samples, quota in zip(own, quotas, strict=True) for k in samples[:quota]]
    pool = [given[i] for i in rng.permutation("si_blurry.pool", 0, len(given))]
    wanted = []
    for part, samples, quota in zip(parts("si_blurry.disjoint", disjoint), own, quotas, strict=True):
        taken, pool = pool[:quota], pool[quota:]
        wanted.append(sorted([k for k, c in enumerate(data.train.labels) if c in part] + samples[quota:] + taken))
    assert [sorted(task.tolist()) for task in order.tasks] == [task for task in wanted if task]


def test_sigmoid_recomputed():
    """Sample by sample from the uniforms; what is left of a group comes where a neighbour runs out."""
    data, width = labelled(np.repeat(np.arange(3), [20, 30, 25])), 0.8
    order, left = Sigmoid(tasks=3, width=width).order(data, 2), []
    for c in order.classes:
        left.append([k for k in order.indices.tolist() if data.train.labels[k] == c])
    sizes = [len(group) for group in left]
    wanted = []
    for t, u in enumerate(Rng(2).uniforms("sigmoid", 0, 75).tolist()):
        right = [
            1 / (1 + math.exp(-4 * (t - end) / (width * min(pair))))
            for end, pair in ((sizes[0], sizes[:2]), (sizes[0] + sizes[1], sizes[1:]))
        ]
        group = 0 if u >= right[0] else 1 if u >= right[0] * right[1] else 2
        near = sorted((abs(other - group), other) for other in range(3) if left[other])
        wanted.append(left[near[0][1]].pop(0))
    assert order.indices.tolist() == wanted


def test_sigmoid_without_width_is_the_disjoint_split():
    data = equal(10, 12)
    assert (Sigmoid(width=0).order(data, 7).indices == IBlurry(disjoint=100, blur=0).order(data, 7).indices).all()


def test_domains_follow_each_other(tmp_path):
    data, path = equal(2, 5), tmp_path / "domains.json"
    domains, times = [7, 7, 3, 3, 9, 9, 3, 7, 9, 3], [5, 4, 3, 2, 1, 0, -1.5, 8, 9, 2]
    path.write_text(json.dumps({"domains": domains}))
    order = component(Stream, f"Domains:path={path}").order(data, 1)
    assert [sorted(task.tolist()) for task in order.tasks] == [[2, 3, 6, 9], [0, 1, 7], [4, 5, 8]]
    timed = Domains(domains=domains, times=times)
    assert [task.tolist() for task in timed.order(data, 1).tasks] in (
        [[6, a, b, 2], [1, 0, 7], [5, 4, 8]] for a, b in [(3, 9), (9, 3)]
    )
    assert Stream.from_json(json.loads(json.dumps(timed.to_json()))) == timed
    path.write_text("{}")
    with pytest.raises(DataError, match="domains"):
        Domains(path=str(path))


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: Domains(), "domains"),
        (lambda: Domains(domains=[0, 1], times=[0.5]), "1 times for 2"),
        (lambda: Domains(domains=[0.5]), "whole numbers"),
        (lambda: Domains(domains=[0], times=[math.nan]), "times"),
        (lambda: Domains(domains=[0], path="x"), "path='x'"),
        (lambda: Domains(domains=[0, 1]).order(load(DATA), 1), "2 domains.* 80"),
        (lambda: Gaussian(sigma=-1), "sigma=-1"),
        (lambda: Gaussian(periods=0), "periods=0"),
        (lambda: Gaussian(initial=1.5), r"initial=1\.5"),
        (lambda: Sigmoid(width=2), "width=2"),
        (lambda: SiBlurry(tasks=101).order(equal(100, 1), 1), "tasks=101"),
        (lambda: Sigmoid(tasks=11).order(equal(10, 2), 1), "tasks=11"),
        (lambda: component(Stream, "Gaussian:sgima=1"), "sigma"),
    ],
)
def test_bad_input(make, word):
    with pytest.raises(InputError, match=word):
        make()
