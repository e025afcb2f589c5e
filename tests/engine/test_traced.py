"""What engines compile on a GPU can be traced as a whole, and computes the same: seen on a CPU, without code for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.engine.eager import Eager
from iblurry.engine.graph import _raise_recompile_limit
from iblurry.learner.learner import Learner
from iblurry.learner.refits import MemorySnapshot, RefitStack
from iblurry.methods import Hyperparameters, method
from iblurry.network.bodies import ResNet

METHODS = ("ewc", "agem", "mir", "clib", "balm", "mkd", "sdp", "derpp", "bic")


class Traced(Eager):
    """Traces what a GPU's engine compiles; a function that cannot be traced to its end raises."""

    def setup(self, network):
        _raise_recompile_limit()
        network.fuse = self.fuse
        return super().setup(network)

    def expect_batch_size(self, network, pipeline, size):
        network.compiled.setdefault(size, self.fuse(network.body))
        pipeline.compiled.setdefault(size, self.fuse(pipeline.vary_eagerly))

    def fuse(self, function):
        return torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_traced_methods_learn_the_same(name):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 1, 8, 8), dtype=np.uint8), rng.integers(0, 4, 60)
    answers = []
    for engine in (Eager(), Traced()):
        learner = Learner(
            method(name, Hyperparameters(batch=8, epochs=2)),
            image=(1, 8, 8),
            classes=4,
            memory=24,
            network="convnet:width=4",
            engine=engine,
        )
        for at, (image, label) in enumerate(zip(images, labels, strict=True), start=1):
            learner.observe(image, int(label))
            if at % 30 == 0:
                learner.end_task()
        answers.append(learner.logits(images[:5]))
    torch.testing.assert_close(answers[1], answers[0])


@pytest.mark.slow
def test_stacked_refits_can_be_traced():
    images = np.random.default_rng(1).integers(0, 256, (16, 3, 16, 16), dtype=np.uint8)
    answers = []
    for engine in (Eager(), Traced()):
        learner = Learner(
            method("gdumb", Hyperparameters(batch=8, epochs=1)),
            image=(3, 16, 16),
            classes=6,
            memory=12,
            network=ResNet(3, blocks=(1, 1, 1, 1), stem="cifar"),
            initialise="redraw",
            engine=engine,
        )
        for at, image in enumerate(images):
            learner.observe(image, at % 3)
        stack = RefitStack(
            learner.method.refit, learner.context, epochs=1, on_progress=lambda done, total: None, models=2
        )
        stack.train([MemorySnapshot.take(learner.context)])
        answers.append(stack.logits(0, torch.from_numpy(images[:4])))
    torch.testing.assert_close(answers[1], answers[0])
