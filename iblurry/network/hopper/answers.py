"""A convolution for answers alone, by that of our own kernels which suits its size."""

from __future__ import annotations

from torch import Tensor

from iblurry.network.hopper import columns, narrow
from iblurry.network.hopper.maps import convolve, tiles

MANY = 4 * 132  # tiles of the narrow kind: some for each multiprocessor of an H200, which fetches the weights once


def answer(maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None = None, *, stride: int) -> Tensor | None:
    """relu(weight * maps + bias) + plus, padded by half the kernel's side; None where no kernel fits."""
    count, channels, high, wide = maps.shape
    fits = narrow.fits(channels, len(weight), high, wide, weight.shape[2], stride)
    if fits and columns.tiles(count, high, wide) >= MANY:
        return narrow.convolve(maps, weight, bias, plus)
    chosen = tiles(count, channels, len(weight), high // stride, wide // stride)
    return None if chosen is None else convolve(maps, weight, chosen, stride=stride, bias=bias, plus=plus)
