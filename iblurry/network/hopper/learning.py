"""A convolution that learns by kernels of our own: operators torch can compile around, and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from iblurry.network.hopper.maps import convolve, group, tiles
from iblurry.network.hopper.weights import ACROSS, PIXELS, plan, weight_gradient


def learns(count: int, channels: int, outputs: int, high: int, wide: int, stride: int) -> bool:
    """Whether maps of this size can be convolved so; high and wide are those before it."""
    if high % stride or wide % stride or channels % ACROSS or outputs % ACROSS or stride > 2:
        return False
    up, across = high // stride, wide // stride
    forwards, backwards = tiles(count, channels, outputs, up, across), tiles(count, outputs, channels, up, across)
    return forwards is not None and backwards is not None and group(PIXELS, up, across) is not None


class Convolve(torch.autograd.Function):
    """weight * maps, in bfloat16 as under autocast; the gradient for the weights is float32 and never rounded."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: int) -> Tensor:
        maps, weight = maps.to(torch.bfloat16), weight.to(torch.bfloat16)
        ctx.save_for_backward(maps, weight)
        ctx.stride = stride
        done: Tensor = torch.ops.iblurry.convolve(maps, weight, stride, False)
        return done

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, Tensor, None]:
        maps, weight = ctx.saved_tensors
        stride, side = ctx.stride, weight.shape[2]
        if stride == 1:
            before = torch.ops.iblurry.convolve(grads, weight, 1, True)
        else:
            half, only_maps = [side // 2] * 2, [True, False, False]
            before, _, _ = torch.ops.aten.convolution_backward(
                grads, maps, weight, None, [stride] * 2, half, [1, 1], False, [0, 0], 1, only_maps
            )
        parts = torch.ops.iblurry.weight_gradient(grads, maps, side, stride)
        return before, parts.sum(0).permute(0, 3, 1, 2), None


def _last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


@torch.library.custom_op(
    "iblurry::convolve", mutates_args=(), schema="(Tensor maps, Tensor weight, int stride, bool backwards) -> Tensor"
)
def _convolve(maps: Tensor, weight: Tensor, stride: int, backwards: bool) -> Tensor:
    count, channels, high, wide = maps.shape
    chosen = tiles(count, channels, weight.shape[1 if backwards else 0], high // stride, wide // stride)
    assert chosen is not None
    return convolve(_last(maps), _last(weight), chosen, stride=stride, backwards=backwards)


@_convolve.register_fake
def _(maps: Tensor, weight: Tensor, stride: int, backwards: bool) -> Tensor:
    count, _, high, wide = maps.shape
    return _last(maps.new_empty(count, weight.shape[1 if backwards else 0], high // stride, wide // stride))


@torch.library.custom_op(
    "iblurry::weight_gradient", mutates_args=(), schema="(Tensor grads, Tensor maps, int side, int stride) -> Tensor"
)
def _weight_gradient(grads: Tensor, maps: Tensor, side: int, stride: int) -> Tensor:
    return weight_gradient(_last(grads), _last(maps), side, stride)


@_weight_gradient.register_fake
def _(grads: Tensor, maps: Tensor, side: int, stride: int) -> Tensor:
    parts = plan(grads.shape, maps.shape[1], side)[0]
    return grads.new_empty(parts, grads.shape[1], side, side, maps.shape[1], dtype=torch.float32)
