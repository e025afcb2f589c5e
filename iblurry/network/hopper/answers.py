"""A convolution for answers alone, by that of our own kernels which suits its size."""

from __future__ import annotations

from torch import Tensor

from iblurry.network.hopper import broad, columns, narrow
from iblurry.network.hopper.maps import convolve, tiles

MANY = 3 * 132  # tiles of 256 pixels: the last round of an H200's 132 multiprocessors is one of four at least


def answer(maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None = None, *, stride: int) -> Tensor | None:
    """relu(weight * maps + bias) + plus, padded by half the kernel's side; None where no kernel fits."""
    count, channels, high, wide = maps.shape
    size = (channels, len(weight), high, wide, weight.shape[2], stride)
    if columns.tiles(count, high, wide) > MANY and narrow.fits(*size):
        return narrow.convolve(maps, weight, bias, plus)
    if columns.tiles(count, high, wide) > MANY and broad.fits(*size):
        return broad.convolve(maps, weight, bias, plus)
    chosen = tiles(count, channels, len(weight), high // stride, wide // stride)
    return None if chosen is None else convolve(maps, weight, chosen, stride=stride, bias=bias, plus=plus)
