"""Colour and sharpness: blends of an image with its grey or its smoothed self."""

from __future__ import annotations

import torch
from torch import Tensor


def blend(images: Tensor, other: Tensor | float, own: Tensor, rest: Tensor) -> Tensor:
    """own * images + rest * other, cut to 0..255 and rounded down; own is 1 + magnitude, rest is -magnitude.

    Beyond 1 it moves away from `other`: more colour, a sharper image. 1 and 0 leave an image exactly as it is.
    """
    return (own * images + rest * other).clamp_(0, 255).to(torch.uint8)


def grey(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> (B, 1, H, W) uint8: how bright each pixel looks, rounded down; grey images as they are."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    seen: Tensor = 0.2989 * red + 0.587 * green + 0.114 * blue
    return seen.to(torch.uint8)


def smooth(images: Tensor) -> Tensor:
    """(B, C, H, W) uint8 -> the same: each pixel five times and its eight neighbours once; the border as it is.

    A sum over 13 is never halfway between two whole numbers, so no order of adding can change the rounding.
    """
    values = images.float()
    rows = values[:, :, :-2] + values[:, :, 1:-1] + values[:, :, 2:]
    sums = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * values[:, :, 1:-1, 1:-1]
    smoothed = images.clone()
    smoothed[:, :, 1:-1, 1:-1] = sums.div_(13).round_().to(torch.uint8)
    return smoothed
