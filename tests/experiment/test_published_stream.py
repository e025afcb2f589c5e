"""The published CIFAR-10 sets as a learner meets them: streams with the published counts and first appearances."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from iblurry.augment.pipeline import Augment
from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.experiment.evaluator import Evaluator
from iblurry.learner.learner import Learner
from iblurry.methods import er
from iblurry.streams import published
from iblurry.streams.iterator import StreamIterator

FACTS = json.loads((Path(__file__).parents[1] / "streams" / "published" / "facts.json").read_text())
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def cifar10():
    """Its labels, in turn, and images of one pixel: exposure is about labels only."""
    parts = [
        LabelledImages(np.zeros((10 * each, 1, 1, 1), dtype=np.uint8), np.tile(np.arange(10), each))
        for each in (5000, 1000)
    ]
    return Dataset("cifar10", CLASSES, *parts, mean=(0.5,), std=(0.5,))


def tasks_of(facts, rng):
    """Class names in stream order with the counts and first appearances of the facts, random in all else."""
    first, met, at = dict(zip(facts["first_appearance"], facts["exposure_order"], strict=True)), [], 0
    for counts in np.transpose(facts["counts_by_label_and_task"]):
        left = dict(zip(facts["label_order"], counts.tolist(), strict=True))
        names = []
        for n in range(at + 1, max([at, *(a for a in first if a <= at + sum(counts))]) + 1):
            if n in first:
                met.append(first[n])
            names.append(first.get(n) or rng.choice([name for name in met if left[name]]))
            left[names[-1]] -= 1
        names += rng.permutation([name for name, count in left.items() for _ in range(count)]).tolist()
        at += len(names)
        yield names


def write(folder, name):
    """Files as the authors publish them, for the set of this name."""
    facts, rng = FACTS["splits"][name], np.random.default_rng(0)
    numbers = {c: iter(rng.permutation(5000) + 1) for c in CLASSES}
    for t, names in enumerate(tasks_of(facts, rng)):
        records = [
            {
                "klass": c,
                facts["path_field"]: f"train/{c}/{next(numbers[c]):04d}.png",
                "label": facts["label_order"].index(c),
            }
            for c in names
        ]
        (folder / f"{name}_task{t}.json").write_text(json.dumps(records))
    order = published.read(folder, cifar10(), tasks=5, n=50, m=10, seed=int(name[-1]))
    assert order.counts(cifar10().train.labels).tolist() == facts["counts_by_label_and_task"]
    assert [CLASSES[c] for c in order.classes] == facts["label_order"]
    return order


class Idle(Learner):
    """Meets classes and gathers samples, but neither trains nor stores."""

    def _round(self):
        self.gathered = []


@pytest.fixture
def learner():
    return Idle(er(), image=(1, 1, 1), classes=CLASSES, network="mlp", augment=Augment(pad=0))


@pytest.mark.quick("1")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_how_many_classes_the_first_queries_ask_about(seed, golden, learner, tmp_path):
    stream = StreamIterator(cifar10(), write(tmp_path, f"cifar10_split5_n50_m10_rand{seed}"))
    evaluator, asked = Evaluator(cifar10(), torch.device("cpu")), []
    for sample in stream:
        learner.observe(sample.image, sample.label)
        if stream.position % 100 == 0:
            asked.append(evaluator.ask(learner).counts()[1])
        if stream.position == 300:
            break
    assert asked == [(1000,) * known for known in golden["first_evaluations_cifar10_n50_m10"][f"rand{seed}"]]
