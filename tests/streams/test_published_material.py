"""What was counted in all 46 published split sets, against our own rule."""

import json
from pathlib import Path

import numpy as np
import pytest

from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.errors import DataError
from iblurry.streams import published
from iblurry.streams.order import i_blurry

SETS = json.loads((Path(__file__).parent / "published" / "facts.json").read_text())["splits"]
SAMPLES = {"cifar10": (10, 5000), "cifar100": (100, 500), "tinyimagenet": (200, 500)}  # classes, samples of each


def numbers(name):
    """The data set, T, N, M and the seed out of a set's name."""
    dataset, tasks, n, m, seed = name.split("_")
    return dataset, int(tasks[5:]), int(n[1:]), int(m[1:]), int(seed[4:])


def test_they_are_the_published_ones():
    per_kind = {}
    for name in SETS:
        dataset, *kind, seed = numbers(name)
        per_kind.setdefault((dataset, *kind), []).append(seed)
    assert len(SETS) == 46
    assert per_kind.pop(("tinyimagenet", 5, 50, 10)) == [0, 1, 2, 3, 4, 5]
    assert per_kind.pop(("cifar100", 5, 100, 0)) == [1]
    assert all(seeds == [1, 2, 3] for seeds in per_kind.values())
    odd = [name for name, facts in SETS.items() if facts["path_field"] == "filepath"]
    assert odd == [f"cifar10_split5_n50_m10_rand{seed}" for seed in (1, 2, 3)]


@pytest.mark.parametrize("name", SETS)
def test_a_published_set_follows_our_rule(name):
    facts = SETS[name]
    dataset, T, N, M, seed = numbers(name)
    C, each = SAMPLES[dataset]
    theirs = np.array(facts["counts_by_label_and_task"])
    assert theirs.shape == (C, T)
    assert (theirs.sum(axis=1) == each).all()
    assert (theirs.sum(axis=0) == {5: 10_000, 10: 5000, 25: 2000}[T] * (2 if dataset == "tinyimagenet" else 1)).all()

    labels = np.tile(np.arange(C), each)
    ours = i_blurry(labels, tasks=T, disjoint=N, blur=M, seed=seed)
    counts, D = ours.counts(labels), facts["disjoint"]
    assert ours.disjoint == D == C * N // 100
    assert (theirs.sum(axis=0) == counts.sum(axis=0)).all()
    assert (theirs[:D] == counts[:D]).all()
    assert (theirs.argmax(axis=1) == ours.majors(labels)).all()
    if D == C:
        return
    home = np.arange(C - D) // ((C - D) // T)
    assert (theirs[D:].argmax(axis=1) == home).all()
    flow = np.stack([theirs[D:][home == t].sum(axis=0) for t in range(T)])  # from the major task to where they are met
    assert (flow.sum(axis=0) == flow.sum(axis=1)).all()  # a task gets as many as it gives
    k = M * flow.sum(axis=1)[0] / 100
    away = flow[~np.eye(T, dtype=bool)]
    assert (np.abs(away - k / T) <= 5 * np.sqrt(k / T) * (1 - 1 / T)).all()
    own = np.arange(D, C), ours.majors(labels)[D:]
    # six standard deviations of the difference of two such counts (14 on ten classes, 9 on more)
    spread = np.sqrt(2) * (16 if C == 10 else 6) * np.sqrt(M / 10)
    assert (np.abs(theirs[own] - counts[own]) < 6 * spread).all()


ROOT = Path(__file__).resolve().parents[2]
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@pytest.fixture(scope="module")
def material():
    found = next(ROOT.parent.glob("*/published_splits.json"), None)
    if found is None:
        pytest.skip("no copy of the published split sets beside the checkout")
    return found


@pytest.fixture(scope="module")
def cifar10():
    """Its labels, in turn, and images of one pixel: an order is about labels only."""
    parts = [
        LabelledImages(np.zeros((10 * each, 1, 1, 1), dtype=np.uint8), np.tile(np.arange(10), each))
        for each in (5000, 1000)
    ]
    return Dataset("cifar10", CIFAR10, *parts, mean=(0.5,), std=(0.5,))


def test_the_whole_published_set(material, cifar10, tmp_path):
    facts = json.loads(material.read_text())["splits"]["cifar10_split5_n50_m10_rand1"]
    order = published.read(material.parent / "splits", cifar10, tasks=5, n=50, m=10, seed=1)
    labels = cifar10.train.labels
    counts = order.counts(labels)

    assert sorted(order.indices.tolist()) == list(range(50_000))
    assert [len(task) for task in order.tasks] == [10_000] * 5
    assert (counts.sum(axis=1) == 5000).all()
    assert [CIFAR10[c] for c in order.classes] == facts["label_order"]
    assert order.disjoint == 5
    assert counts.tolist() == facts["counts_by_label_and_task"]
    assert order.majors(labels).tolist() == [0, 1, 2, 3, 4] * 2

    met, first = np.unique(labels[order.indices], return_index=True)
    exposed = sorted(zip((first + 1).tolist(), [CIFAR10[c] for c in met], strict=True))
    assert [name for _, name in exposed] == facts["exposure_order"]
    assert " ".join(name for _, name in exposed) == "deer ship horse airplane automobile frog cat dog truck bird"
    assert [at for at, _ in exposed] == [1, 2, 25, 62, 100, 111, 10002, 20002, 30001, 40001]
    golden = json.loads((ROOT / "tests" / "golden.json").read_text())["first_evaluations_cifar10_n50_m10"]["rand1"]
    assert [sum(at <= n for at, _ in exposed) for n in (100, 200, 300)] == golden

    deer = CIFAR10.index("deer")
    assert order.indices[0] == np.flatnonzero(labels == deer)[1743 - 1]  # train/deer/1743.png
    published.export(order, cifar10, tmp_path, seed=1, n=50, m=10)
    assert published.read(tmp_path, cifar10, tasks=5, n=50, m=10, seed=1) == order


def test_one_file_of_another_set(material, cifar10):
    file = material.parent / "splits" / "cifar10_split5_n0_m10_rand1_task0.json"
    facts = json.loads(material.read_text())["splits"]["cifar10_split5_n0_m10_rand1"]
    order = published.read_files([file], cifar10)
    assert [CIFAR10[c] for c in order.classes] == facts["label_order"]
    assert order.counts(cifar10.train.labels)[:, 0].tolist() == [row[0] for row in facts["counts_by_label_and_task"]]
    with pytest.raises(DataError, match=r"has no cifar10_split5_n0_m10_rand1_task1.json"):
        published.read(file.parent, cifar10, tasks=5, n=0, m=10, seed=1)
