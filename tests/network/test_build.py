"""Building by name: seeds, initial values, and errors that say what to do."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from iblurry.errors import InputError, UnknownNameError
from iblurry.network.bodies import ConvNet
from iblurry.network.build import build
from iblurry.network.registry import NETWORKS
from iblurry.network.weights import redraw
from iblurry.rng import Rng

SMALL = [("convnet", (1, 8, 8)), ("mlp", (1, 8, 8)), ("resnet18", (3, 16, 16))]


@pytest.mark.parametrize("name, image", SMALL)
def test_the_seed_decides_every_weight_and_the_global_generator_none(name, image):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one = build(name, image, 4, rng=Rng(1)).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    same, other = (build(name, image, 4, rng=Rng(seed)).state_dict() for seed in (1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one)
    drawn = [key for key in one if one[key].dim() > 1 and not key.startswith("head")]
    assert drawn
    assert all((one[key] != other[key]).any() for key in drawn)


def test_initial_values():
    network = build("resnet18", (3, 16, 16), 4, rng=Rng(3))
    for module in network.body.modules():
        if isinstance(module, nn.Conv2d):
            spread = np.sqrt(2 / (module.out_channels * module.kernel_size[0] ** 2))
            assert module.weight.std().item() == pytest.approx(spread, rel=0.05)
            assert module.weight.abs().max().item() > 2.5 * spread  # normal, not uniform
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
            assert (module.running_mean == 0).all()
            assert (module.running_var == 1).all()
    assert (network.head.weight == 0).all()
    assert (network.head.bias == 0).all()
    assert not network.open.any()


def test_linear_layers_start_uniform():
    hidden = [m for m in build("mlp", (1, 8, 8), 2, rng=Rng(1)).body.modules() if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in hidden] == [(64, 256), (256, 256)]
    for module in hidden:
        bound = 1 / np.sqrt(module.in_features)
        assert 0.99 * bound < module.weight.abs().max().item() <= bound
        assert 0.9 * bound < module.bias.abs().max().item() <= bound


def test_initialising_again_is_a_fresh_start_in_place():
    network = build("convnet", (1, 8, 8), 2, rng=Rng(1))
    first = {key: value.clone() for key, value in network.state_dict().items()}
    placed = [p.data_ptr() for p in network.parameters()]
    network.train()(torch.rand(4, 1, 8, 8))  # moves the statistics of batch norm
    redraw(network.body, Rng(1), step=1)
    assert not torch.equal(network.body.layers[0][0].weight, first["body.layers.0.0.weight"])
    redraw(network.body, Rng(1))
    assert all(torch.equal(value, first[key]) for key, value in network.state_dict().items())
    assert [p.data_ptr() for p in network.parameters()] == placed


def test_a_layer_without_a_rule_is_noticed():
    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.zeros(3))

    with pytest.raises(InputError, match=r"'1', a Token.*initialise='keep'"):
        redraw(nn.Sequential(nn.LayerNorm(3), Token()), Rng(1))


def test_the_stem_follows_the_side():
    def kernel(side, **options):
        with torch.device("meta"):
            return NETWORKS["resnet18"]((3, side, side), **options).layers[0][0].kernel_size[0]

    assert [kernel(16), kernel(32), kernel(63), kernel(64), kernel(64, stem="cifar")] == [3, 3, 3, 7, 3]


def test_options_reach_the_body():
    assert build("mlp:width=10", (1, 2, 2), 2, rng=Rng(1)).body.features == 10
    body = build("convnet:width=4", (3, 32, 32), 2, rng=Rng(1)).body
    assert isinstance(body, ConvNet)
    assert [layer[0].out_channels for layer in body.layers[:-1]] == [4, 8, 16, 16]


@pytest.mark.parametrize(
    "name, image, rows, error, named",
    [
        ("resnet18:stem=cifer", (3, 32, 32), 2, UnknownNameError, "'cifer'.*'cifar'"),
        ("resnet18", (3, 15, 20), 2, InputError, "15x20 .* 16x16.*'convnet'"),
        ("resnet34:stem=imagenet", (3, 48, 48), 2, InputError, "48x48 .* 64x64.*'cifar'"),
        ("convnet", (1, 8, 7), 2, InputError, "8x7 .* 8x8.*'mlp'"),
        ("convnet", (1, 8, 8), 0, InputError, "rows is 0"),
        ("convnet", (0, 8, 8), 2, InputError, "channels is 0"),
        ("mlp:width=2.5", (1, 8, 8), 2, InputError, "2.5"),
    ],
)
def test_errors_say_what_is_allowed(name, image, rows, error, named):
    with pytest.raises(error, match=named):
        build(name, image, rows, rng=Rng(1))


def test_networks_are_drawn_by_several_threads_as_by_one():
    seeds = range(1, 9)
    alone = [build("convnet", (3, 16, 16), 4, rng=Rng(seed)) for seed in seeds]
    drawn = [build("convnet", (3, 16, 16), 4, rng=Rng(0)) for _ in seeds]
    before = torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(redraw, [network.body for network in drawn], [Rng(seed) for seed in seeds]))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(alone, drawn, strict=True):
        assert all(map(torch.equal, one.body.state_dict().values(), other.body.state_dict().values()))
