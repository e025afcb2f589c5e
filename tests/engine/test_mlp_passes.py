"""MLPPasses: the weights of autograd, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry import Augment, Learner
from iblurry.engine.mlp_passes import MLPPasses


@pytest.mark.parametrize("method", ["er", "clib", "mir", "gdumb"])
@pytest.mark.parametrize("mixed", [0.0, 1.0])
def test_weights_and_optimizer_are_those_of_autograd(method, mixed, monkeypatch):
    """Also while some rows of the head are closed."""
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (40, 3, 8, 8), dtype=np.uint8), rng.integers(0, 4, 40)
    used: list[MLPPasses] = []
    backward = MLPPasses.backward
    monkeypatch.setattr(
        MLPPasses, "backward", lambda passes, gradient: (used.append(passes), backward(passes, gradient))
    )

    def learnt() -> Learner:
        augment = Augment(pad=2, cutmix=mixed)
        learner = Learner(method, image=(3, 8, 8), classes=6, memory=20, network="mlp:width=16", augment=augment)
        learner.observe(images, labels)
        learner.predict(images)  # gdumb trains for it
        return learner

    by_hand = learnt()
    assert used
    used.clear()
    monkeypatch.setattr(MLPPasses, "fits", lambda network: False)
    by_autograd = learnt()
    assert not used
    for one, other in zip(by_hand.snapshot(), by_autograd.snapshot(), strict=True):
        assert torch.equal(one, other)
    states = [learner.trainer.optimizer_state() for learner in (by_hand, by_autograd)]
    assert states[0].keys() == states[1].keys()
    for place, buffers in states[0].items():
        assert all(torch.equal(values, states[1][place][name]) for name, values in buffers.items())


@pytest.mark.parametrize("network, freeze", [("convnet", "none"), ("mlp", "body"), ("mlp", "layers.1")])
def test_others_train_by_autograd(network, freeze):
    learner = Learner("er", image=(1, 8, 8), memory=20, network=network, freeze=freeze)
    assert not MLPPasses.fits(learner.context.network)
