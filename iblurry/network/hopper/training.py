"""A convolution that trains by own kernels: operators that torch.compile knows, and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from iblurry.network.bodies import ConvUnit
from iblurry.network.hopper import convolution
from iblurry.network.hopper.convolution import choose_tile, group_rows
from iblurry.network.hopper.weight_gradient import LEAST, PIXELS, plan_tiles, weight_gradient


def convolve(maps: Tensor, unit: ConvUnit) -> Tensor:
    """The unit's convolution in a training step: by own kernels where they fit, else by torch's."""
    conv = unit.convolution
    stride = conv.stride[0]
    if fits(maps.shape, conv.out_channels, conv.kernel_size[0], stride):
        rounded = conv.weight.detach().to(torch.bfloat16) if unit.weight_bf16 is None else unit.weight_bf16
        done: Tensor = ConvolveFunction.apply(maps, conv.weight, rounded, stride)  # type: ignore[no-untyped-call]
    else:
        done = conv(maps)
    return done


def fits(maps: torch.Size, outputs: int, side: int, stride: int) -> bool:
    """Whether the kernels compute this convolution, forwards and backwards."""
    count, channels, high, wide = maps
    if side not in (1, 3) or stride not in (1, 2):
        return False
    if high % stride or wide % stride or channels % LEAST or outputs % LEAST:
        return False
    up, across = high // stride, wide // stride
    forwards = choose_tile(count, channels, outputs, up, across)
    backwards = choose_tile(count, outputs, channels, up, across)
    return forwards is not None and backwards is not None and group_rows(PIXELS, up, across) is not None


class ConvolveFunction(torch.autograd.Function):
    """weight * maps, in bfloat16 as under autocast; the gradient for the weights is float32 and never rounded."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, rounded: Tensor, stride: int) -> Tensor:
        """`rounded` is the weight in bfloat16; its gradient is the weight's."""
        maps = maps.to(torch.bfloat16)
        ctx.save_for_backward(maps, rounded)
        ctx.stride = stride
        done: Tensor = torch.ops.iblurry.convolve(maps, rounded, stride, False)
        return done

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        maps, weight = ctx.saved_tensors
        before = torch.ops.iblurry.convolve(grads, weight, ctx.stride, True)
        parts = torch.ops.iblurry.weight_gradient(grads, maps, weight.shape[2], ctx.stride)
        return before, sum_parts(parts), None, None


def sum_parts(parts: Tensor) -> Tensor:
    """The gradient of the weight, (outputs, channels, side, side), from its parts."""
    return (parts[0] if len(parts) == 1 else parts.sum(0)).permute(0, 3, 1, 2)


def _channels_last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


@torch.library.custom_op(
    "iblurry::convolve", mutates_args=(), schema="(Tensor maps, Tensor weight, int stride, bool backwards) -> Tensor"
)
def _convolve(maps: Tensor, weight: Tensor, stride: int, backwards: bool) -> Tensor:
    count, channels, high, wide = maps.shape
    if backwards:
        tile = choose_tile(count, channels, weight.shape[1], high, wide, times=stride**2)
    else:
        tile = choose_tile(count, channels, len(weight), high // stride, wide // stride)
    assert tile is not None
    return convolution.convolve(_channels_last(maps), _channels_last(weight), tile, stride=stride, backwards=backwards)


@_convolve.register_fake
def _(maps: Tensor, weight: Tensor, stride: int, backwards: bool) -> Tensor:
    count, _, high, wide = maps.shape
    if backwards:
        return _channels_last(maps.new_empty(count, weight.shape[1], high * stride, wide * stride))
    return _channels_last(maps.new_empty(count, len(weight), high // stride, wide // stride))


@torch.library.custom_op(
    "iblurry::weight_gradient", mutates_args=(), schema="(Tensor grads, Tensor maps, int side, int stride) -> Tensor"
)
def _weight_gradient(grads: Tensor, maps: Tensor, side: int, stride: int) -> Tensor:
    return weight_gradient(_channels_last(grads), _channels_last(maps), side, stride)


@_weight_gradient.register_fake
def _(grads: Tensor, maps: Tensor, side: int, stride: int) -> Tensor:
    parts = plan_tiles(grads.shape, maps.shape[1], side).parts
    return grads.new_empty(parts, grads.shape[1], side, side, maps.shape[1], dtype=torch.float32)
