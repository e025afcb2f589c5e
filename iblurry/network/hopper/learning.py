"""A convolution that learns by kernels of our own: operators torch can compile around, and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from iblurry.network.hopper.maps import convolve, group, tiles
from iblurry.network.hopper.weights import LEAST, PIXELS, plan, weight_gradient
from iblurry.network.unit import Unit


def learn(maps: Tensor, unit: Unit) -> Tensor:
    """The unit's convolution in a training step: by our own kernels where they fit, else by torch's."""
    conv = unit.convolution
    stride = conv.stride[0]
    if learns(maps.shape, conv.out_channels, conv.kernel_size[0], stride):
        rounded = conv.weight.detach().to(torch.bfloat16) if unit.rounded is None else unit.rounded
        done: Tensor = Convolve.apply(maps, conv.weight, rounded, stride)  # type: ignore[no-untyped-call]
    else:
        done = conv(maps)
    return done


def learns(maps: torch.Size, outputs: int, side: int, stride: int) -> bool:
    """Whether maps of this shape can be convolved so."""
    count, channels, high, wide = maps
    if side not in (1, 3) or stride not in (1, 2):
        return False
    if high % stride or wide % stride or channels % LEAST or outputs % LEAST:
        return False
    up, across = high // stride, wide // stride
    forwards, backwards = tiles(count, channels, outputs, up, across), tiles(count, outputs, channels, up, across)
    return forwards is not None and backwards is not None and group(PIXELS, up, across) is not None


class Convolve(torch.autograd.Function):
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
        return before, whole(parts), None, None


def whole(parts: Tensor) -> Tensor:
    """The gradient of the weights as they lie, of its parts."""
    return (parts[0] if len(parts) == 1 else parts.sum(0)).permute(0, 3, 1, 2)


def _last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


@torch.library.custom_op(
    "iblurry::convolve", mutates_args=(), schema="(Tensor maps, Tensor weight, int stride, bool backwards) -> Tensor"
)
def _convolve(maps: Tensor, weight: Tensor, stride: int, backwards: bool) -> Tensor:
    count, channels, high, wide = maps.shape
    if backwards:
        chosen = tiles(count, channels, weight.shape[1], high, wide, times=stride**2)
    else:
        chosen = tiles(count, channels, len(weight), high // stride, wide // stride)
    assert chosen is not None
    return convolve(_last(maps), _last(weight), chosen, stride=stride, backwards=backwards)


@_convolve.register_fake
def _(maps: Tensor, weight: Tensor, stride: int, backwards: bool) -> Tensor:
    count, _, high, wide = maps.shape
    if backwards:
        return _last(maps.new_empty(count, weight.shape[1], high * stride, wide * stride))
    return _last(maps.new_empty(count, len(weight), high // stride, wide // stride))


@torch.library.custom_op(
    "iblurry::weight_gradient", mutates_args=(), schema="(Tensor grads, Tensor maps, int side, int stride) -> Tensor"
)
def _weight_gradient(grads: Tensor, maps: Tensor, side: int, stride: int) -> Tensor:
    return weight_gradient(_last(grads), _last(maps), side, stride)


@_weight_gradient.register_fake
def _(grads: Tensor, maps: Tensor, side: int, stride: int) -> Tensor:
    parts = plan(grads.shape, maps.shape[1], side).parts
    return grads.new_empty(parts, grads.shape[1], side, side, maps.shape[1], dtype=torch.float32)
