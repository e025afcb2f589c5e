"""Networks that are built in and those that users bring: names, keys, initial weights, frozen parts, errors."""

from __future__ import annotations

import functools
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from iblurry.components import objects
from iblurry.engine.network import OptimizedNetwork
from iblurry.errors import InputError, UnknownNameError
from iblurry.learner import refits
from iblurry.methods import gdumb
from iblurry.network.bodies import ConvNet
from iblurry.network.build import build, restart
from iblurry.network.flops import flops
from iblurry.network.registry import NETWORKS, network_key, register_network
from iblurry.network.weights import redraw
from iblurry.parts import Refit
from iblurry.rng import Rng
from tests.laws.lawful import HYPERPARAMETERS, new_learner
from tests.laws.user_module import DropPath, dropout, pretrained

IMAGE = (1, 8, 8)


def made(network, seed=1, **options):
    return build(network, IMAGE, 4, rng=Rng(seed), **options)


def body_state(network):
    return {name: values.clone() for name, values in network.body.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def small(image, width: int = 6):
    return nn.Sequential(nn.Flatten(), nn.Linear(image[1] * image[2], width))


# ------------------------------------------------------------------------------------------------ names and keys


def test_keys_of_names():
    assert network_key("resnet18") == "resnet18"
    assert network_key("resnet18:stem=cifar") == "resnet18:stem=cifar"
    assert network_key(" mlp: width=064 ") == "mlp:width=64"
    register_network(small)
    key = network_key("small:width=5")
    assert key.startswith("small@")
    assert key.endswith(":width=5")
    assert network_key(small) == network_key("small")
    assert network_key(key) == key
    assert made(key).features == made("small:width=5").features == 5
    assert flops(key, IMAGE, 4) == flops("small:width=5", IMAGE, 4) == 2 * (64 * 5 + 5 * 4)


def test_keys_of_objects():
    module = pretrained()
    keys = [network_key(one) for one in (module, pretrained(width=5), lambda image: small(image), small)]
    keys += [network_key(functools.partial(small, width=width)) for width in (2, 3)]
    assert len(set(keys)) == 6
    assert all("@" in key for key in keys)
    assert network_key(functools.partial(small, width=2)) == keys[4]
    assert [made(key).features for key in keys] == [12, 5, 6, 6, 2, 3]
    assert same(body_state(made(keys[0])), dict(module.state_dict()))


def test_a_module_is_kept_as_it_was():
    module = pretrained()
    key, before = network_key(module), {name: values.clone() for name, values in module.state_dict().items()}
    assert network_key(module.eval()) == key  # the mode is no part of it
    with torch.no_grad():
        module[0].bias += 1
    assert network_key(module) != key
    assert same(body_state(made(key)), before)
    module[0].requires_grad_(False)
    assert network_key(module) not in (key, None)


def test_what_is_not_here_is_refused():
    for key in ("small@0123456789ab", "Sequential@0123456789ab:width=3"):
        assert network_key(key) == key  # a run of it can be read
        with pytest.raises(InputError, match=key.partition(":")[0]):
            made(key)
    register_network(small)
    with pytest.raises(InputError, match="small@0123456789ab"):
        made("small@0123456789ab")


@pytest.mark.parametrize(
    "given, error, named",
    [
        ("resnet8", UnknownNameError, "resnet8"),
        ("mlp:wdith=3", UnknownNameError, "wdith"),
        ("mlp:width=wide", InputError, "width=wide"),
        ("mlp:width", InputError, "width"),
        ("mlp:width=3,width=4", InputError, "width"),
        (3, InputError, "3"),
        (None, InputError, "None"),
        (b"mlp", InputError, "mlp"),
    ],
)
def test_what_is_no_network_is_refused(given, error, named):
    with pytest.raises(error, match=named):
        network_key(given)
    with pytest.raises(error, match=named):
        made(given)


def test_names_that_are_taken():
    def mlp(image):
        return small(image)

    with pytest.raises(InputError, match="'mlp'"):
        register_network(mlp)

    def dropout(image):
        return small(image)

    with pytest.raises(InputError, match="user_module"):
        register_network(dropout)
    for width in (3, 4):

        def again(image, width=width):
            return small(image, width)

        register_network(again)
        assert made("again").features == width
    with pytest.raises(InputError, match="Sequential"):
        register_network(pretrained())
    assert "mlp" in NETWORKS


# ------------------------------------------------------------------------------------------------ bodies


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
    "name, image, error, named",
    [
        ("resnet18:stem=cifer", (3, 32, 32), UnknownNameError, "'cifer'.*'cifar'"),
        ("resnet18", (3, 15, 20), InputError, "15x20 .* 16x16.*'convnet'"),
        ("resnet34:stem=imagenet", (3, 48, 48), InputError, "48x48 .* 64x64.*'cifar'"),
        ("convnet", (1, 8, 7), InputError, "8x7 .* 8x8.*'mlp'"),
        ("mlp:width=2.5", (1, 8, 8), InputError, "2.5"),
        ("convnet:width=0", (1, 8, 8), InputError, "0"),
    ],
)
def test_errors_say_what_is_allowed(name, image, error, named):
    with pytest.raises(error, match=named):
        build(name, image, 2, rng=Rng(1))


def test_options_and_features():
    def any_options(image, **options):
        return small(image, **options)

    class Body(nn.Module):
        features = "no number"

        def __init__(self, image):
            super().__init__()
            self.layer = nn.Linear(image[2], 7)

        def forward(self, images):
            return self.layer(images).mean((1, 2))

    assert made(f"{network_key(any_options)}:width=3").features == 3
    assert made(Body).features == 7
    assert made(functools.partial(NETWORKS["mlp"], width=5)).features == 5
    with pytest.raises(UnknownNameError, match="width"):
        made(f"{network_key(pretrained())}:width=3")


class OfAnotherKind(nn.Module):
    def forward(self, images):
        return {"pooled": images.flatten(1)}


@pytest.mark.parametrize(
    "body, named",
    [
        (OfAnotherKind(), "dict"),
        (nn.Conv2d(1, 2, 3), "AdaptiveAvgPool2d"),
        (nn.Conv2d(3, 2, 3), "8, 8"),
        (nn.Flatten(0), "64"),
        (nn.Unflatten(3, (4, 2)), "1, 1, 8, 4, 2"),
        (nn.LSTM(8, 3), "LSTM"),
        (lambda image: "a body", "a body"),
    ],
)
def test_bodies_that_do_not_fit(body, named):
    with pytest.raises(InputError, match=named):
        made(body)


def test_random_numbers_are_noticed():
    class Draws(nn.Module):
        def __init__(self, draw, always=False):
            super().__init__()
            self.draw, self.always = draw, always

        def forward(self, images):
            return images.flatten(1) + (self.draw() if self.training or self.always else 0)

    assert not made(pretrained()).draws
    assert made(dropout).draws
    assert made(nn.Sequential(nn.Flatten(), DropPath(64, 0.5))).draws
    assert not made(dropout, freeze="body").draws
    assert not made("mlp").draws
    for draw in (lambda: random.random(), lambda: np.random.rand()):
        with pytest.raises(InputError, match="Draws"):
            made(Draws(draw))
    with pytest.raises(InputError, match="eval mode"):
        made(Draws(lambda: torch.rand(()), always=True))


def test_a_batch_of_one_image_trains_where_batch_norm_needs_two():
    network = OptimizedNetwork(made("bias_free")).train()
    norm = network.body[2]
    network(torch.rand(5, *IMAGE))
    before = body_state(network)
    network(torch.rand(1, *IMAGE)).sum().backward()
    assert same(body_state(network), before)
    assert norm.training
    assert network.body[1].weight.grad is not None
    assert not made(pretrained()).norms_need_two


# ------------------------------------------------------------------------------------------------ weights


@pytest.mark.parametrize(
    "name, image",
    [*((name, IMAGE) for name in ("convnet", "mlp", "layer_norm", "group_norm")), ("resnet18", (3, 16, 16))],
)
def test_the_seed_decides_every_weight_and_the_global_generator_none(name, image):
    before = torch.get_rng_state()
    one = build(name, image, 4, rng=Rng(1)).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    again, other = (build(name, image, 4, rng=Rng(seed)).state_dict() for seed in (1, 2))
    assert same(one, again)
    drawn = [key for key in one if one[key].dim() > 1 and not key.startswith("head")]
    assert drawn
    assert all((one[key] != other[key]).any() for key in drawn)


def test_a_factory_keeps_its_own_rules_and_a_module_its_weights():
    assert not same(*(body_state(made("group_norm", initialise=initialise)) for initialise in ("keep", "redraw")))
    module = pretrained()
    assert same(body_state(made(module, 1)), body_state(made(module, 2)))


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
    redraw(network.body, Rng(2))
    assert not torch.equal(network.body.layers[0][0].weight, first["body.layers.0.0.weight"])
    redraw(network.body, Rng(1))
    assert all(torch.equal(value, first[key]) for key, value in network.state_dict().items())
    assert [p.data_ptr() for p in network.parameters()] == placed


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


def test_redrawn_layers_of_any_kind():
    body = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.LazyLinear(5, bias=False),
        nn.BatchNorm1d(5, affine=False),
    )
    body(torch.rand(8, *IMAGE))
    one, again, other = (body_state(made(body, seed, initialise="redraw")) for seed in (1, 1, 2))
    assert same(one, again)
    assert (one["0.bias"] == 0).all()
    assert (one["4.running_mean"] == 0).all()
    assert not torch.equal(one["3.weight"], other["3.weight"])
    with pytest.raises(InputError, match=r"'2'.*DropPath.*keep"):
        made(nn.Sequential(nn.Flatten(), nn.Linear(64, 3), DropPath(3, 0.1)), initialise="redraw")
    with pytest.raises(InputError, match="ParametrizedLinear"):
        made(nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(64, 3))), initialise="redraw")
    with pytest.raises(InputError, match="'fresh'"):
        made("mlp", initialise="fresh")


def test_a_refit_starts_with_the_weights_that_were_kept(samples, questions, monkeypatch):
    """And again after a resume, in which the learner's own weights have moved on."""
    module = pretrained()
    method = gdumb(HYPERPARAMETERS, readout=Refit(epochs=1))
    learner = new_learner(method, network=module)
    starts = []

    def watched(network, labels, rng):
        restart(network, labels, rng)
        starts.append(body_state(network))

    monkeypatch.setattr(refits, "restart", watched)
    for stop in (10, 20, 30):
        for image, label in samples[stop - 10 : stop]:
            learner.observe(image, label)
        learner.predict(questions)
    assert len(starts) == 3
    assert all(same(start, dict(module.state_dict())) for start in starts)


# ------------------------------------------------------------------------------------------------ freezing


def test_frozen_parts_stand_still_and_stay_in_eval_mode():
    network = made(pretrained(), freeze="1, 4.bias")
    assert list(network.trainable()) == ["body.0.weight", "body.0.bias", "body.4.weight", "head.weight", "head.bias"]
    for mode in (True, False, True):
        network.train(mode)
        assert network.body[0].training is mode
        assert not network.body[1].training
    before = body_state(network)
    network(torch.rand(4, *IMAGE)).sum().backward()
    assert same(before, body_state(network))
    assert [p.grad is None for p in network.body.parameters()] == [False, False, True, True, False, True]


@pytest.mark.parametrize(
    "names, shown",
    [("layer", "layers"), ("layers.7", r"layers\.0"), ("layers.0.0.wait", r"layers\.0\.0\.weight"), ("", "body")],
)
def test_unknown_names_are_refused_with_those_beside(names, shown):
    with pytest.raises(UnknownNameError, match=shown):
        made("convnet", freeze=names)


def test_objects_that_are_kept_can_travel():
    key = network_key(pretrained())
    sent = objects.select([key, "mlp"])
    assert list(sent) == [key]


def test_a_module_without_weights_yet_is_refused():
    with pytest.raises(InputError, match="lazy"):
        network_key(nn.Sequential(nn.Flatten(), nn.LazyLinear(4)))
