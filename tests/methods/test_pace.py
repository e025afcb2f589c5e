"""How many updates a whole stream earns, and when."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iblurry.augment.pipeline import Augment
from iblurry.experiment.settings import setting
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, clib, er
from iblurry.storage.untrusted import exact

PIXEL = np.zeros((1, 1, 1), dtype=np.uint8)


class Counting(Learner):
    """Notes the sample at which each update is due instead of taking it, and stores nothing."""

    def __init__(self, method, *, memory):
        super().__init__(method, image=(1, 1, 1), classes=1, memory=memory, network="mlp", augment=Augment(pad=0))
        self.due = []
        self.trainer.update = lambda stream, *, last_of_round: self.due.append(self.context.seen)

    def _store(self, sample):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, recipe, updates", [("cifar10", er, 50_000), ("cifar10", clib, 50_000), ("cifar100", clib, 150_000)]
)
def test_a_whole_stream(name, recipe, updates, golden):
    usual = setting(name)
    row = dict(
        zip(golden["updates"]["columns"], next(r for r in golden["updates"]["rows"] if r[0] == name), strict=True)
    )
    learner = Counting(recipe(usual.hyperparameters), memory=usual.memory)
    for _ in range(row["stream"]):
        learner.observe(PIXEL, 0)
    assert len(learner.due) == row["total_updates_CLIB"] == updates
    calls, iterations = np.unique(learner.due, return_counts=True)
    if recipe is er:
        assert len(calls) == 6250
        assert (calls % row["stream_half"] == 0).all()
        assert set(iterations) == {golden["updates"]["er_iterations_per_stream_batch"][name]}
    else:
        assert len(calls) == row["stream"]
        assert set(iterations) == {row["updates_per_sample"]}


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "tinyimagenet", "imagenet"])
def test_updates_golden(golden, dataset):
    """Updates per stream batch and in all, counted on a stream of 1/100 and scaled."""
    row = next(r for r in golden["updates"]["rows"] if r[0] == dataset)
    _, stream, per_sample, batch, half, total, evaluations = row
    usual = setting(dataset)
    assert (usual.hyperparameters.batch, exact(usual.hyperparameters.updates_per_sample)) == (batch, per_sample)
    assert stream // usual.query_every == evaluations
    counting = Counting(er(usual.hyperparameters), memory=2 * batch)
    for _ in range(4 * half):
        counting.observe(PIXEL, 0)
    _, iterations = np.unique(counting.due, return_counts=True)
    assert iterations.tolist() == [golden["updates"]["er_iterations_per_stream_batch"][dataset]] * 4
    counting = Counting(clib(usual.hyperparameters), memory=2 * batch)
    short = 1000 + stream % 1000
    for _ in range(short):
        counting.observe(PIXEL, 0)
    assert len(counting.due) == int(short * per_sample)
    assert int(stream * per_sample) == total


@pytest.mark.parametrize("updates, every", [(0.25, 4), (0.1, 10)])  # binary tenths would be due after 11
def test_a_fraction_of_an_update_per_sample(updates, every):
    learner = Counting(clib(Hyperparameters(updates_per_sample=updates)), memory=20)
    for _ in range(41):
        learner.observe(PIXEL, 0)
    assert learner.due == list(range(every, 41, every))


def test_early_samples_earn_more():
    method = er()
    pace = dataclasses.replace(method.pace, early_samples=12, early_updates=3)
    learner = Counting(dataclasses.replace(method, pace=pace), memory=20)
    for _ in range(32):
        learner.observe(PIXEL, 0)
    assert np.bincount(learner.due)[8::8].tolist() == [24, 16, 8, 8]
