"""Floating-point operations of one image's forward pass, by torch's own counter."""

from __future__ import annotations

import functools

import torch
from torch.utils.flop_counter import FlopCounterMode

from iblurry.network.build import Image, build
from iblurry.rng import Rng

BACKWARD = 2  # forward passes that a backward pass is worth: one product for the input, one for the weight


@functools.cache
def flops(network: str, image: Image, rows: int) -> int:
    """Operations of the convolutions and products for one image; a multiplication with its addition is two.

    Parameters
    ----------
    network : str
        A name, such as `resnet18`.
    image : tuple of int
        Channels, height, width.
    rows : int
        Rows of the head.

    >>> flops("mlp", (3, 8, 8), 10) == 2 * (192 * 256 + 256 * 256 + 256 * 10)
    True
    """
    built = build(network, image, rows, rng=Rng(1)).eval()
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        built(torch.zeros(1, *image))
    return int(counter.get_total_flops())
