"""Floating-point operations of a forward pass: its convolutions and linear layers, counted on one image."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn

from iblurry.network.build import Image, build
from iblurry.rng import Rng

BACKWARD = 2  # forward passes that a backward pass is worth: one product for the input, one for the weight


@functools.cache
def flops(network: str, image: Image, rows: int) -> int:
    """Of one image through the named network with so many head rows; a multiplication with its addition is two.

    >>> flops("mlp", (3, 8, 8), 10) == 2 * (192 * 256 + 256 * 256 + 256 * 10)
    True
    """
    built = build(network, image, rows, rng=Rng(1)).eval()
    counted: list[int] = []

    def count(layer: nn.Module, _: Any, output: Tensor) -> None:
        each = layer.weight  # (outputs, inputs, ...): what is multiplied for one number of the output
        assert isinstance(each, Tensor)
        counted.append(2 * output.numel() * math.prod(each.shape[1:]))

    for layer in built.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    with torch.no_grad():
        built(torch.zeros(1, *image))
    return sum(counted)
