"""Two classes, a thousand, and classes of very different sizes: loaded, split and learnt."""

from __future__ import annotations

import numpy as np
import pytest

from iblurry import Dataset, Experiment, run

COUNTS = {
    "two": [20, 20],
    "two, one sample of one": [1, 40],
    "uneven": [1, 2, 3, 60, 1, 8, 100, 1, 1, 2],
    "thousand": [2] * 1000,
    "thousand, uneven": [1 + 40 * (label % 100 == 0) for label in range(1000)],
}


def data(counts, **more):
    """Test images are the first of each class."""
    labels = np.repeat(np.arange(len(counts)), counts)
    images = np.random.default_rng(1).integers(0, 256, (len(labels), 4, 4), dtype=np.uint8)
    first = np.unique(labels, return_index=True)[1]
    return Dataset.from_arrays(images, labels, images[first], labels[first], **more)


@pytest.mark.parametrize("method", ["er", "clib"])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_a_run_counts_them_all(counts, method, tmp_path):
    facts = {"tasks": 2, "mode": "uneven", "memory": 2 * len(counts) + 20, "network": "mlp", "query_every": 20}
    experiment = Experiment.of(method, "mine", samples=40, **facts)
    result = run(experiment, out=tmp_path, dataset=data(counts))
    assert result.metrics.samples == 40
    assert 0 <= result.metrics.a_auc <= 1


def test_a_class_without_samples_is_only_a_name(tmp_path):
    found = data([10, 10], classes=["a", "b", "never seen"])
    experiment = Experiment.of("er", "mine", tasks=2, mode="uneven", memory=20, network="mlp", query_every=10)
    assert run(experiment, out=tmp_path, dataset=found).metrics.samples == 20
