"""Inference by own kernels: which convolution kernel suits a layer, and the first layer's patches."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from iblurry.engine.hopper import conv3x3, convolution
from iblurry.engine.hopper.launch import launch

PIXELS = 128  # of one block that writes patches


def convolve(maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None = None, *, stride: int) -> Tensor | None:
    """relu(weight * maps + bias) + plus, padded by half the kernel's side; None where no kernel fits."""
    count, channels, high, wide = maps.shape
    size = (channels, len(weight), high, wide, weight.shape[2], stride)
    if conv3x3.is_worthwhile(count, high, wide) and conv3x3.fits(*size):
        return conv3x3.convolve(maps, weight, bias, plus)
    if high % stride or wide % stride:
        return None
    tile = convolution.choose_tile(count, channels, len(weight), high // stride, wide // stride)
    return None if tile is None else convolution.convolve(maps, weight, tile, stride=stride, bias=bias, plus=plus)


def write_patches(images: Tensor, buffer: Tensor, side: int) -> None:
    """images (B, C, H, W) -> buffer (B, at least side * side * C, H, W), channels last; those left over become 0.

    A first convolution of three channels would leave most of the tensor cores idle; on patches it is a 1x1 one.
    Channel tap * C + c of a pixel is channel c of the neighbour that the tap meets, 0 outside the image.
    """
    count, channels, high, wide = images.shape
    total = count * high * wide
    launch(
        _write_patches,
        triton.cdiv(total, PIXELS),
        images,
        buffer,
        total,
        *images.stride(),
        CHANNELS=channels,
        HIGH=high,
        WIDE=wide,
        SIDE=side,
        BUFFER=buffer.shape[1],
        PIXELS=PIXELS,
    )


@triton.jit(do_not_specialize=["total", "image_step", "channel_step", "row_step", "column_step"])
def _write_patches(
    images, buffer, total, image_step, channel_step, row_step, column_step, CHANNELS: tl.constexpr, HIGH: tl.constexpr,
    WIDE: tl.constexpr, SIDE: tl.constexpr, BUFFER: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)[:, None]
    channel = tl.arange(0, BUFFER)[None, :]
    tap = channel // CHANNELS
    row = pixel // WIDE % HIGH + tap // SIDE - SIDE // 2
    column = pixel % WIDE + tap % SIDE - SIDE // 2
    is_there = (tap < SIDE * SIDE) & (row >= 0) & (row < HIGH) & (column >= 0) & (column < WIDE) & (pixel < total)
    place = pixel // (HIGH * WIDE) * image_step + channel % CHANNELS * channel_step
    place += row * row_step + column * column_step
    values = tl.load(images + place, mask=is_there, other=0.0)
    tl.store(buffer + pixel * BUFFER + channel, values.to(tl.bfloat16), mask=pixel < total)
