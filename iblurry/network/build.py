"""Networks by name: the registry, its checks, and the first draw of the weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import nn

from iblurry.errors import InputError, UnknownNameError
from iblurry.network import convnet as _convnet
from iblurry.network import resnet as _resnet
from iblurry.network.initial import fresh_bias, fresh_row, fresh_weight, initialise
from iblurry.network.mlp import MLP
from iblurry.network.network import Network
from iblurry.rng import Rng

__all__ = ["NETWORKS", "build", "fresh_bias", "fresh_row", "fresh_weight", "initialise"]

Image = tuple[int, int, int]  # channels, height, width
Maker = Callable[[Image], nn.Module]  # of a body for such images, which says how many `features` it returns


def build(name: str | Maker, image: Image, rows: int, *, rng: Rng, **options: object) -> Network:
    """The network of this name, or with the body that is made, for such images; its head has so many rows, all closed.

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
    _positive("number of rows", rows)
    for what, given in zip(("number of channels", "image height", "image width"), image, strict=True):
        _positive(what, given)
    with torch.random.fork_rng(devices=[]):  # torch's layers draw from the global generator when they are made
        network = Network(maker(image, **options), rows)
    initialise(network.body, rng)
    return network


def convnet(image: Image, *, width: int = 16) -> nn.Module:
    """A few units; for work without an accelerator."""
    _positive("width of a convnet", width)
    _at_least(_convnet.SMALLEST, image, "a convnet", remedy="use the network 'mlp'")
    return _convnet.ConvNet(image, width=width)


def mlp(image: Image, *, width: int = 256) -> nn.Module:
    """Two hidden layers; the quickest, for images of any size."""
    _positive("width of an mlp", width)
    return MLP(image, width=width)


def resnet18(image: Image, *, stem: _resnet.Stem | None = None) -> nn.Module:
    """11 million weights; the stem follows the image side unless given: cifar up to 32, imagenet above."""
    return _of_depth("resnet18", image, (2, 2, 2, 2), stem)


def resnet34(image: Image, *, stem: _resnet.Stem | None = None) -> nn.Module:
    """21 million weights; stem as for resnet18."""
    return _of_depth("resnet34", image, (3, 4, 6, 3), stem)


NETWORKS: dict[str, Callable[..., nn.Module]] = {maker.__name__: maker for maker in (convnet, mlp, resnet18, resnet34)}


def _of_depth(name: str, image: Image, blocks: tuple[int, ...], stem: _resnet.Stem | None) -> nn.Module:
    stem = stem or ("cifar" if min(image[1:]) <= 32 else "imagenet")
    if stem not in _resnet.SMALLEST:
        raise UnknownNameError("stem", str(stem), _resnet.SMALLEST)
    other = "the network 'convnet'" if stem == "cifar" else "stem='cifar'"
    _at_least(_resnet.SMALLEST[stem], image, f"{name} with the {stem} stem", remedy=f"use {other}")
    return _resnet.ResNet(image[0], blocks=blocks, stem=stem)


def _at_least(side: int, image: Image, what: str, *, remedy: str) -> None:
    _, height, width = image
    if min(height, width) < side:
        raise InputError(
            f"The images are {height}x{width} pixels, but {what} needs at least {side}x{side}; "
            f"{remedy} or larger images."
        )


def _positive(what: str, given: object) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InputError(f"The {what} is {given!r}, but it must be a whole number of at least 1.")
