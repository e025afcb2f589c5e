from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from iblurry.augment.pipeline import Augment
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, clib

RNG = np.random.default_rng(2)


def trained(samples):
    method, options = clib(Hyperparameters(batch=8)), {"memory": 16, "network": "convnet", "augment": Augment(pad=1)}
    learner = Learner(method, image=(1, 8, 8), classes=4, **options)
    for i in range(samples):
        learner.observe(RNG.integers(0, 256, (1, 8, 8), dtype=np.uint8), i % 3)
    return learner.context


def test_losses_of_the_memory_are_those_of_plain_images_in_eval_mode():
    context = trained(9)
    buffers = {name: value.clone() for name, value in context.network.named_buffers()}
    losses = context.memory_losses()
    context.network.eval()
    pixels = (context.memory.images[:9].float() / 255 - 0.5) / 0.25
    with torch.no_grad():
        expected = F.cross_entropy(context.network(pixels), context.memory.labels[:9], reduction="none")
    torch.testing.assert_close(losses[:9].float(), expected, rtol=1e-4, atol=1e-5)
    assert losses.dtype == torch.float64
    assert losses.shape == (16,)
    assert not losses[9:].any()
    for name, value in context.network.named_buffers():
        assert torch.equal(value, buffers[name]), name


def test_chunks_do_not_change_answers(monkeypatch):
    context = trained(20)
    images = torch.from_numpy(RNG.integers(0, 256, (130, 1, 8, 8), dtype=np.uint8))
    whole = context.logits(images)
    monkeypatch.setattr("iblurry.parts.context.VALUES", 1)  # chunks of 64
    torch.testing.assert_close(context.logits(images), whole)
