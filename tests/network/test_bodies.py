"""The bodies: shapes, counts, the order of ReLU and sum, and training on a single image."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from iblurry.engine.network import OptimizedNetwork
from iblurry.network.bodies import ResidualBlock, ResNet
from iblurry.network.build import build
from iblurry.network.network import Network
from iblurry.network.registry import NETWORKS
from iblurry.rng import Rng

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())
SIDES = {"cifar10": 32, "cifar100": 32, "tinyimagenet": 64, "imagenet": 224}
SMALLEST = [
    ("convnet", (1, 8, 8)),
    ("mlp", (1, 1, 1)),
    ("resnet18", (3, 16, 16)),
    ("resnet18:stem=imagenet", (3, 64, 64)),
]


def numbers(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("dataset, name, classes, total, backbone", GOLDEN["models"]["rows"])
def test_parameter_counts(dataset, name, classes, total, backbone):
    side = SIDES[dataset]
    with torch.device("meta"):
        network = Network(NETWORKS[name]((3, side, side)), classes)
    assert numbers(network.body) == backbone
    assert numbers(network) == total
    assert len(list(network.parameters())) == {"resnet18": 62, "resnet34": 110}[name]
    assert sum(isinstance(m, nn.Conv2d) for m in network.modules()) == {"resnet18": 20, "resnet34": 36}[name]


def test_stems_give_the_published_maps():
    for stem, side, sides in (("cifar", 32, [32, 16, 8, 4]), ("imagenet", 64, [16, 8, 4, 2])):
        with torch.device("meta"):
            body = ResNet(3, blocks=(1, 1, 1, 1), stem=stem)
            maps, seen = torch.empty(1, 3, side, side), []
            for layer in body.layers:
                maps = layer(maps)
                if isinstance(layer, ResidualBlock):
                    seen.append(maps.shape[-1])
        assert seen == sides
        assert maps.shape[1] == body.features == 512


def test_nothing_follows_the_sum_of_a_block():
    block = ResidualBlock(8, 8)
    for module in block.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.zeros_(module.weight)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.bias, -1.0)
    images = torch.linspace(-3, 3, 2 * 8 * 4 * 4).view(2, 8, 4, 4)
    torch.testing.assert_close(block(images), images, rtol=0, atol=0)


def test_both_branches_of_a_block_end_with_relu():
    block = ResidualBlock(4, 8, stride=2)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 4, 6, 6, generator=generator)
    assert block.branch(images).min() == 0
    assert block.shortcut(images).min() == 0
    torch.testing.assert_close(block(images), block.branch(images) + block.shortcut(images))


def test_batch_norm_as_published():
    norms = [m for m in build("resnet18", (3, 16, 16), 2, rng=Rng(1)).modules() if isinstance(m, nn.BatchNorm2d)]
    assert {(m.eps, m.momentum, m.affine) for m in norms} == {(1e-6, 0.1, True)}


@pytest.mark.parametrize("name, image", SMALLEST)
def test_a_batch_of_one_trains(name, image):
    network = build(name, image, 3, rng=Rng(1))
    network.expose("a", torch.full((network.body.features,), 0.01), torch.zeros(1))
    network.expose("b", torch.full((network.body.features,), -0.01), torch.zeros(1))
    before = [p.detach().clone() for p in network.body_parameters()]
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    images = torch.linspace(0, 1, image[0] * image[1] * image[2]).view(1, *image) + 1
    nn.functional.cross_entropy(network.train()(images), torch.tensor([1])).backward()
    optimiser.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, network.body_parameters(), strict=True))
    assert all(p.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("image", [(1, 8, 8), (3, 9, 13), (3, 32, 32), (1, 28, 28), (2, 8, 64)])
def test_convnet_keeps_a_map_that_batch_norm_can_train(image):
    body = build("convnet", image, 2, rng=Rng(1)).body
    sides = []
    maps = torch.rand(1, *image)
    for layer in body.layers:
        maps = layer(maps)
        if maps.dim() == 4:
            sides.append(min(maps.shape[2:]))
    assert 2 <= sides[-1] <= 4
    assert sides[0] == min(image[1:])
    assert maps.shape == (1, body.features)


@pytest.mark.parametrize("name, image", SMALLEST)
def test_statistics_of_a_pass_that_are_kept_apart_move_the_network_afterwards_as_the_pass_would_have(name, image):
    images, others = (torch.randn(4, *image, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    plain, apart = (OptimizedNetwork(build(name, image, 3, rng=Rng(1))).train() for _ in range(2))
    plain(images), plain(others)
    before = {key: values.clone() for key, values in apart.named_buffers()}
    with apart.apart_statistics() as move:
        answers = apart(others)
    assert all(torch.equal(values, before[key]) for key, values in apart.named_buffers())
    apart(images)
    move()
    assert torch.equal(answers, build(name, image, 3, rng=Rng(1)).train()(others))
    for key, values in apart.named_buffers():
        torch.testing.assert_close(values, dict(plain.named_buffers())[key], msg=key)


def test_statistics_that_a_single_image_reads_are_not_kept_apart():
    network = OptimizedNetwork(build("resnet18", (3, 16, 16), 3, rng=Rng(1))).train()
    assert network.passes_can_overlap
    network.norms_need_two = True
    image = torch.randn(1, 3, 16, 16)
    expected = network(image)
    with network.apart_statistics():
        assert torch.equal(network(image), expected)


def test_passes_of_a_body_that_a_compiler_traces_do_not_overlap():
    network = OptimizedNetwork(build("convnet", (1, 8, 8), 3, rng=Rng(1))).train()
    network.fuse = lambda function: function
    assert not network.passes_can_overlap
