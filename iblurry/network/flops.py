"""Floating-point operations of one image's forward pass, by torch's own counter."""

from __future__ import annotations

import functools

import torch
from torch.utils.flop_counter import FlopCounterMode

from iblurry.network.build import build
from iblurry.network.registry import AnyNetwork, Image, network_key
from iblurry.rng import Rng

BACKWARD = 2  # forward passes that a backward pass is worth: one product for the input, one for the weight


def flops(network: AnyNetwork, image: Image, rows: int) -> int:
    """Operations of the convolutions and products for one image; a multiplication with its addition is two.

    Parameters
    ----------
    network : str, callable or nn.Module
        A name such as `resnet18`, a key, a factory or a module.
    image : tuple of int
        Channels, height, width.
    rows : int
        Rows of the head.

    >>> flops("mlp", (3, 8, 8), 10) == 2 * (192 * 256 + 256 * 256 + 256 * 10)
    True
    """
    return _flops(network_key(network), image, rows)


@functools.lru_cache(maxsize=128)
def _flops(network: str, image: Image, rows: int) -> int:
    built = build(network, image, rows, rng=Rng(1)).eval()
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        built(torch.zeros(1, *image))
    return int(counter.get_total_flops())
