"""Networks by name: the registry, its checks, and the initial weights, drawn from the run's Rng."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from iblurry.errors import InputError, UnknownNameError
from iblurry.network.bodies import MLP, SMALLEST_CONVNET, SMALLEST_RESNET, ConvNet, ResNet, Stem
from iblurry.network.network import Network
from iblurry.rng import Rng

Image = tuple[int, int, int]  # channels, height, width
Maker = Callable[[Image], nn.Module]  # makes a body for such images; `body.features` is how many numbers it returns


def build(name: str | Maker, image: Image, rows: int, *, rng: Rng, **options: object) -> Network:
    """A network with freshly drawn weights and a head whose rows are all closed.

    Parameters
    ----------
    name : str or callable
        A name in NETWORKS ("mlp", "convnet", "resnet18", "resnet34"), or a function from the image shape to a body: a
        module with an attribute `features`, the length of the vector it returns per image.
    image : tuple of int
        (channels, height, width).
    rows : int
        Rows of the head: the most classes it can learn.
    rng : Rng
        The initial weights of the body are drawn from it.
    **options
        Keyword-only arguments of the named network, such as width=128 or stem="cifar".

    Examples
    --------
    >>> network = build("convnet", (1, 8, 8), 10, rng=Rng(seed=1))
    >>> network.rows, network.known
    (10, 0)
    """
    maker = NETWORKS.get(name) if isinstance(name, str) else name
    if maker is None:
        raise UnknownNameError("network", str(name), NETWORKS)
    allowed = [p.name for p in inspect.signature(maker).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in allowed:
            raise UnknownNameError(f"option of network {name!r}", option, allowed)
    _check_positive("number of rows", rows)
    for what, given in zip(("number of channels", "image height", "image width"), image, strict=True):
        _check_positive(what, given)
    with torch.random.fork_rng(devices=[]):  # torch's layers draw from the global generator when they are made
        network = Network(maker(image, **options), rows)
    initialise(network.body, rng)
    return network


def convnet(image: Image, *, width: int = 16) -> nn.Module:
    """A few units; for work without an accelerator."""
    _check_positive("width of a convnet", width)
    _check_side(SMALLEST_CONVNET, image, "a convnet", remedy="use the network 'mlp'")
    return ConvNet(image, width=width)


def mlp(image: Image, *, width: int = 256) -> nn.Module:
    """Two hidden layers; the quickest, for images of any size."""
    _check_positive("width of an mlp", width)
    return MLP(image, width=width)


def resnet18(image: Image, *, stem: Stem | None = None) -> nn.Module:
    """11 million weights; the stem follows the image side unless given: cifar up to 32, imagenet above."""
    return _resnet("resnet18", image, (2, 2, 2, 2), stem)


def resnet34(image: Image, *, stem: Stem | None = None) -> nn.Module:
    """21 million weights; stem as for resnet18."""
    return _resnet("resnet34", image, (3, 4, 6, 3), stem)


NETWORKS: dict[str, Callable[..., nn.Module]] = {maker.__name__: maker for maker in (convnet, mlp, resnet18, resnet34)}


def _resnet(name: str, image: Image, blocks: tuple[int, ...], stem: Stem | None) -> nn.Module:
    stem = stem or ("cifar" if min(image[1:]) <= 32 else "imagenet")
    if stem not in SMALLEST_RESNET:
        raise UnknownNameError("stem", str(stem), SMALLEST_RESNET)
    other = "the network 'convnet'" if stem == "cifar" else "stem='cifar'"
    _check_side(SMALLEST_RESNET[stem], image, f"{name} with the {stem} stem", remedy=f"use {other}")
    return ResNet(image[0], blocks=blocks, stem=stem)


def _check_side(least: int, image: Image, what: str, *, remedy: str) -> None:
    _, height, width = image
    if min(height, width) < least:
        raise InputError(
            f"The images are {height}x{width} pixels, but {what} needs at least {least}x{least}; "
            f"{remedy} or larger images."
        )


def _check_positive(what: str, given: object) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InputError(f"The {what} is {given!r}, but it must be a whole number of at least 1.")


@torch.no_grad()
def initialise(body: nn.Module, rng: Rng, *, step: int = 0) -> None:
    """Draw all weights of a body afresh, in place; each step is another draw.

    Convolutions: Kaiming normal, fan-out, ReLU gain. Batch norm: weight 1, bias 0, fresh statistics.
    Linear layers: uniform in ±1/sqrt(inputs).
    """
    high, low = rng.uniforms("network", step, 2).tolist()
    generator = torch.Generator().manual_seed((int(high * 2**32) << 31) | int(low * 2**31))  # 63 bits
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            fresh = torch.empty(module.weight.shape)  # drawn on the CPU: every device starts from the same weights
            nn.init.kaiming_normal_(fresh, mode="fan_out", nonlinearity="relu", generator=generator)
            module.weight.copy_(fresh)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            for parameter in (module.weight, module.bias):
                parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
        else:
            assert not any(True for _ in module.parameters(recurse=False)), f"no rule to draw a {type(module).__name__}"


def fresh_row(rng: Rng, row: int, features: int) -> tuple[Tensor, Tensor]:
    """Weight (features,) and bias (1,) of a head row that opens, uniform in ±1/sqrt(features)."""
    drawn = _uniform(rng, "head", step=row, n=features + 1, bound=1 / math.sqrt(features))
    return drawn[:features], drawn[features:]


def fresh_bias(rng: Rng, row: int, rows: int, features: int) -> Tensor:
    """The whole bias (rows,) drawn again as `row` opens, uniform in ±1/sqrt(features)."""
    return _uniform(rng, "head bias", step=row, n=rows, bound=1 / math.sqrt(features))


def fresh_weight(rng: Rng, row: int, rows: int, features: int) -> Tensor:
    """The whole weight (rows, features) drawn again as `row` opens, uniform in ±1/sqrt(features)."""
    drawn = _uniform(rng, "head weight", step=row, n=rows * features, bound=1 / math.sqrt(features))
    return drawn.view(rows, features)


def _uniform(rng: Rng, purpose: str, *, step: int, n: int, bound: float) -> Tensor:
    return torch.from_numpy(((2 * rng.uniforms(purpose, step, n) - 1) * bound).astype(np.float32))
