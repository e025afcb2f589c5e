"""Refits that are trained at once become what each becomes alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from iblurry.augment import Augment
from iblurry.learner.learner import Learner
from iblurry.learner.refits import MemorySnapshot, RefitStack
from iblurry.methods import Hyperparameters, gdumb
from iblurry.network.bodies import ResNet
from iblurry.parts import Cosine

CAPACITY, BATCH, EPOCHS, SIDE = 12, 8, 2, 16
STOPS = (14, 23)


@pytest.fixture(scope="module")
def stacked():
    """A learner, two snapshots of its memory, and what its own refits at these moments answered."""
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (max(STOPS), 3, SIDE, SIDE), dtype=np.uint8)
    method = gdumb(Hyperparameters(batch=BATCH, epochs=EPOCHS))
    slow = dataclasses.replace(method.refit, schedule=Cosine(initial_lr=0.002, floor=0.0))  # so that errors stay small
    learner = Learner(
        dataclasses.replace(method, refit=slow),
        image=(3, SIDE, SIDE),
        classes=6,
        memory=CAPACITY,
        network=ResNet(3, blocks=(1, 1, 1, 1), stem="cifar"),
        initialise="redraw",
        augment=Augment(pad=2, policy="cifar10"),
    )
    questions = images[:5]
    snapshots, alone = [], []
    for i, image in enumerate(images, 1):
        learner.observe(image, int(rng.integers(0, 3 + i // 8)))
        if i in STOPS:
            snapshots.append(MemorySnapshot.take(learner.context))
            alone.append(learner.logits(questions).clone())
    return learner, snapshots, torch.from_numpy(questions), alone


def stack(learner, models, epochs=EPOCHS):
    return RefitStack(
        learner.method.refit, learner.context, epochs=epochs, on_progress=lambda done, total: None, models=models
    )


@pytest.mark.slow
def test_each_network_becomes_what_it_becomes_alone_whatever_the_others_are(stacked):
    learner, snapshots, questions, alone = stacked
    together = stack(learner, models=2)
    together.train(snapshots)
    assert len({snapshot.labels for snapshot in snapshots}) > 1  # they do not know the same classes
    for model, expected in enumerate(alone):
        torch.testing.assert_close(together.logits(model, questions), expected, rtol=1e-2, atol=1e-2)
    assert not torch.allclose(alone[0], alone[1], atol=0.1)  # so being close means something
    before = together.logits(1, questions).clone()
    together.train(snapshots[1:])  # filled up with a copy
    assert torch.equal(together.logits(0, questions), before)
    assert torch.equal(together.logits(1, questions), before)


def test_the_cost_is_what_a_refit_alone_counts_and_without_kernels_there_is_no_stack(stacked):
    learner, *_ = stacked
    spent, cost = learner.context.queries, stack(learner, models=1).cost
    assert spent.updates == len(STOPS) * cost.updates
    assert spent.forward["training"] == len(STOPS) * cost.forward["training"]
    assert spent.backward["training"] == len(STOPS) * cost.backward["training"]
    assert not RefitStack.fits(learner.method.refit, learner.context)


def test_a_stack_begins_after_the_memory_became_full(stacked, monkeypatch):
    learner, *_ = stacked
    context = learner.context
    monkeypatch.setattr(type(context.network), "has_kernels", True)
    assert RefitStack.fits(learner.method.refit, context)
    monkeypatch.setattr(context.memory, "offered", CAPACITY)
    assert not RefitStack.fits(learner.method.refit, context)
