"""Floating-point operations of one image's forward pass, by torch's own counts."""

from __future__ import annotations

import functools

from iblurry.components.lazy_torch import torch
from iblurry.network.registry import AnyNetwork, Image, network_key
from iblurry.rng import Rng

BACKWARD = 2  # forward passes that a backward pass is worth: one product for the input, one for the weight


def flops(network: AnyNetwork, image: Image, rows: int, *, freeze: str = "none") -> int:
    """Operations of the convolutions and products for one image; a multiplication with its addition is two.

    Parameters
    ----------
    network : str, callable or nn.Module
        A name such as `resnet18`, a key, a factory or a module.
    image : tuple of int
        Channels, height, width.
    rows : int
        Rows of the head.
    freeze : str
        "body" for a learner that stores features: those of its head alone, see `feature_flops`.

    >>> flops("mlp", (3, 8, 8), 10) == 2 * (192 * 256 + 256 * 256 + 256 * 10)
    True
    """
    body, features = _body(network_key(network), image)
    return 2 * features * rows + (0 if freeze == "body" else body)


def feature_flops(network: AnyNetwork, image: Image) -> int:
    """Operations of the body alone for one image: what features cost that are computed once and stored.

    >>> feature_flops("mlp", (3, 8, 8)) == 2 * (192 * 256 + 256 * 256)
    True
    """
    return _body(network_key(network), image)[0]


@functools.lru_cache(maxsize=128)
def _body(network: str, image: Image) -> tuple[int, int]:
    """Operations, and how many features the body returns."""
    from iblurry.network.build import build
    from iblurry.network.plain_counter import PlainCounter

    built = build(network, image, 1, rng=Rng(1)).eval()
    with PlainCounter() as counter, torch.no_grad():
        built.body(torch.zeros(1, *image))
    return counter.total, built.features
