"""Gradients of groups of a batch, taken by one pass, are those of the groups one by one."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from iblurry.engine.network import OptimizedNetwork
from iblurry.engine.stacked import GroupedNetwork
from iblurry.network.build import build, open_row
from iblurry.rng import Rng

GROUPS, COUNT = 3, 4


@pytest.mark.quick("convnet:width=4-9")
@pytest.mark.parametrize("name, side", [("convnet:width=4", 9), ("resnet18:stem=cifar", 16)])
def test_gradients_by_group(name, side):
    torch.manual_seed(1)
    rng = Rng(1)
    network = OptimizedNetwork(
        build(name, (3, side, side), 4, rng=rng)
    ).double()  # in float32, rounding crosses a kink now and then
    for label in "abc":
        open_row(network, label, rng)
    images = torch.randn(GROUPS * COUNT, 3, side, side, dtype=torch.float64)
    labels = torch.randint(0, 3, (GROUPS * COUNT,))
    network.train()(images)  # so that running statistics are not those of the start
    network.eval()
    found = GroupedNetwork(network, GROUPS).gradients(images, labels)
    weights = list(network.parameters())
    for group, (own, answers) in enumerate(zip(images.chunk(GROUPS), labels.chunk(GROUPS), strict=True)):
        expected = torch.autograd.grad(F.cross_entropy(network(own), answers), weights)
        for slope, slopes in zip(expected, found, strict=True):
            assert (slopes[group] - slope).norm() < 1e-5 * slope.norm()


def test_the_weights_are_those_of_now():
    network = OptimizedNetwork(build("convnet:width=4", (1, 8, 8), 2, rng=Rng(1)))
    for label in "ab":
        open_row(network, label, Rng(1))
    grouped = GroupedNetwork(network.eval(), 2)
    images, labels = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 1, 0])
    before = grouped.gradients(images, labels)
    with torch.no_grad():
        for p in network.parameters():
            p.mul_(1.5)
    assert all(not torch.allclose(a, b) for a, b in zip(before, grouped.gradients(images, labels), strict=True))


def test_similarities_are_cosines_over_all_weights():
    network = OptimizedNetwork(build("convnet:width=4", (1, 8, 8), 2, rng=Rng(1)))
    gradients = [torch.randn(GROUPS, *p.shape) for p in network.parameters()]
    flat = torch.cat([gradient.flatten(1) for gradient in gradients], 1)
    found = GroupedNetwork(network, GROUPS).similarities(gradients)
    torch.testing.assert_close(found, F.cosine_similarity(flat[1:], flat[:1]))
