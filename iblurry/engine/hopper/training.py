"""Units that train by own kernels: convolutions, as operators that torch.compile knows, and what follows them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iblurry.engine.convolutions import WeightStream, fits_patch
from iblurry.engine.hopper import conv3x3, convolution
from iblurry.engine.hopper.convolution import choose_tile, group_rows
from iblurry.engine.hopper.inference import write_patches
from iblurry.engine.hopper.norm import ACROSS, NormFunction, NormState
from iblurry.engine.hopper.weight_gradient import (
    LEAST,
    PIXELS,
    Descent,
    descend,
    plan_tiles,
    weight_gradient,
)
from iblurry.network.bodies import ConvUnit, PassedGradient


def convolve(maps: Tensor, unit: ConvUnit) -> Tensor:
    """The unit's convolution in a training step: by own kernels where they fit, else by torch's."""
    conv = unit.convolution
    if fits(maps.shape, conv.out_channels, conv.kernel_size[0], conv.stride[0]):
        return convolve_stacked(maps, unit, 1)
    if unit.finish is not None and has_patches(maps, conv, 1):  # else it is inside what a compiler traces
        return convolve_patches(maps, unit, 1)
    done: Tensor = conv(maps)
    return done


def has_patches(images: Tensor, conv: nn.Conv2d, models: int) -> bool:
    """Whether `convolve_patches` can compute this convolution: a first one, of few channels."""
    count, _, high, wide = images.shape
    patches = torch.Size((count, LEAST, high, wide))
    return fits_patch(conv) and not images.requires_grad and fits(patches, conv.out_channels, 1, 1, models)


def convolve_patches(images: Tensor, unit: ConvUnit, models: int) -> Tensor:
    """The first convolutions of so many models: the patch under each pixel becomes channels of a 1x1 one."""
    count, _, high, wide = images.shape
    conv = unit.convolution
    patches = images.new_empty(count, high, wide, LEAST, dtype=torch.bfloat16).permute(0, 3, 1, 2)
    write_patches(images, patches, conv.kernel_size[0])
    taps = conv.weight.permute(0, 2, 3, 1).flatten(1)[:, :, None, None]
    rounded = taps.new_zeros(len(taps), LEAST, 1, 1, dtype=torch.bfloat16)
    rounded[:, : taps.shape[1]].copy_(taps.detach())
    return _apply(unit, patches, taps, rounded, 1, models, models, None, None)


def finish(maps: Tensor, unit: ConvUnit, plus: Tensor | None, models: int = 1) -> Tensor:
    """Batch norm, ReLU and the sum behind the unit: by own kernels in a training step, else by torch's."""
    norm: Any = unit[1]
    if norm.training and maps.dtype is torch.bfloat16 and maps.shape[1] % ACROSS == 0:
        state = NormState((norm.running_mean, norm.running_var), norm.eps, norm.momentum)
        passed = unit.passes_sum if plus is not None and _is_awaited(unit.passes_sum) else None
        given = maps, norm.weight, norm.bias, plus, state, models, passed
        done: Tensor = NormFunction.apply(*given)  # type: ignore[no-untyped-call]
        return done
    maps = F.relu(norm(maps))
    return maps if plus is None else maps + plus


def convolve_stacked(maps: Tensor, unit: ConvUnit, models: int, descent: Descent | None = None) -> Tensor:
    """The convolutions of so many models in a training step, each of its share of the maps and of the weights."""
    conv = unit.convolution
    if descent is not None:
        also = unit.receives, unit.passes, unit.weight_stream
        done: Tensor = DescendFunction.apply(maps, descent, conv.stride[0], models, *also)  # type: ignore[no-untyped-call]
        return done
    rounded = conv.weight.detach().to(torch.bfloat16) if unit.weight_bf16 is None else unit.weight_bf16
    given = maps, conv.weight, rounded, conv.stride[0], models, models, unit.receives, unit.passes
    return _apply(unit, *given)


def _apply(
    unit: ConvUnit, maps: Tensor, weight: Tensor, rounded: Tensor, stride: int, models: int, *given: Any
) -> Tensor:
    """A convolution with the unit's weight stream."""
    stream = unit.weight_stream if weight.is_leaf else None  # else autograd goes on with its gradient
    done: Tensor = ConvolveFunction.apply(maps, weight, rounded, stride, models, *given, stream)  # type: ignore[no-untyped-call]
    return done


def is_large(maps: torch.Size, outputs: int, side: int, stride: int) -> bool:
    """Whether `conv3x3` computes this convolution: of 64 channels, with many maps."""
    count, channels, high, wide = maps
    fits = channels == 64 and conv3x3.fits(channels, outputs, high, wide, side, stride)
    return fits and conv3x3.is_worthwhile(count, high, wide)


def convolve_grouped(maps: Tensor, unit: ConvUnit, gradient: Tensor, groups: int) -> Tensor:
    """The unit's convolution, whose weight gradients come back apart for each group of the maps.

    `gradient` is where: a tensor of the shape (groups * outputs, channels, side, side) whose values do not matter.
    """
    conv = unit.convolution
    rounded = conv.weight.detach().to(torch.bfloat16)
    given = maps, gradient, rounded, conv.stride[0], 1, groups, None, None, None
    done: Tensor = ConvolveFunction.apply(*given)  # type: ignore[no-untyped-call]
    return done


def fits(maps: torch.Size, outputs: int, side: int, stride: int, models: int = 1) -> bool:
    """Whether the kernels compute this convolution, forwards and backwards."""
    count, channels, high, wide = maps
    if side not in (1, 3) or stride not in (1, 2):
        return False
    if high % stride or wide % stride or channels % LEAST or outputs % LEAST:
        return False
    up, across = high // stride, wide // stride
    forwards = choose_tile(count, channels, outputs, up, across, models=models)
    backwards = choose_tile(count, outputs, channels, up, across, models=models)
    steps = [group_rows(pixels, up, across) for pixels in (PIXELS, PIXELS // 2)]  # of the gradient for the weights
    return None not in (forwards, backwards, *steps)


class ConvolveFunction(torch.autograd.Function):
    """weight * maps, in bfloat16 as under autocast; the gradient for the weights is float32 and never rounded."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        weight: Tensor,
        rounded: Tensor,
        stride: int,
        models: int,
        groups: int,
        receives: PassedGradient | None,
        passes: PassedGradient | None,
        weight_stream: WeightStream | None,
    ) -> Tensor:
        """`rounded` is the weight in bfloat16, with channels of zeros behind those given; its gradient is the weight's,
        of each group of the maps apart.
        """
        maps = maps.to(torch.bfloat16)
        ctx.save_for_backward(maps, rounded)
        ctx.channels, ctx.stride, ctx.models, ctx.groups = weight.shape[1], stride, models, groups
        ctx.weight_stream = weight_stream
        if weight_stream is not None:
            ctx.weight = weight
        _set_passed(ctx, receives, passes)
        done: Tensor = torch.ops.iblurry.convolve(maps, rounded, stride, False, models)
        return done

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
        (maps, rounded), stream = ctx.saved_tensors, ctx.weight_stream

        def gradient() -> Tensor:
            parts = torch.ops.iblurry.weight_gradient(grads, maps, rounded.shape[2], ctx.stride, ctx.groups)
            return sum_parts(parts)[:, : ctx.channels]

        begun = None if stream is None else stream.mark()
        before = _convolve_backwards(ctx, grads, rounded) if ctx.needs_input_grad[0] else None
        slope = gradient() if stream is None else stream.run(begun, ctx.weight, [grads, maps], gradient)
        return before, slope, *[None] * 7


class DescendFunction(torch.autograd.Function):
    """weight * maps; the backward pass takes the weight's step."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        descent: Descent,
        stride: int,
        models: int,
        receives: PassedGradient | None,
        passes: PassedGradient | None,
        weight_stream: WeightStream,
    ) -> Tensor:
        maps = maps.to(torch.bfloat16)
        ctx.save_for_backward(maps)
        ctx.descent, ctx.stride, ctx.models, ctx.weight_stream = descent, stride, models, weight_stream
        _set_passed(ctx, receives, passes)
        done: Tensor = torch.ops.iblurry.convolve(maps, descent.rounded, stride, False, models)
        return done

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
        (maps,), descent, stream = ctx.saved_tensors, ctx.descent, ctx.weight_stream
        grads, maps = _channels_last(grads), _channels_last(maps)
        before = _convolve_backwards(ctx, grads, descent.rounded)  # by the old weight
        step = functools.partial(descend, grads, maps, ctx.stride, ctx.models, descent)
        stream.run(stream.mark(), descent.weight, [grads, maps], step)
        return before, *[None] * 6


def _is_awaited(passed: PassedGradient | None) -> bool:
    return passed is not None and passed.is_awaited


def _set_passed(ctx: Any, receives: PassedGradient | None, passes: PassedGradient | None) -> None:
    ctx.receives, ctx.passes = receives, passes
    if receives is not None:
        receives.is_awaited = True


def _convolve_backwards(ctx: Any, grads: Tensor, weight: Tensor) -> Tensor | None:
    """The gradient for the input maps, with the one that was passed here; None where it is passed on itself."""
    added: Tensor | None = None if ctx.receives is None else ctx.receives.take()
    if added is None:
        before: Tensor = torch.ops.iblurry.convolve(grads, weight, ctx.stride, True, ctx.models)
    else:
        before = run_convolution(grads, weight, ctx.stride, True, ctx.models, plus=added)
    if not _is_awaited(ctx.passes):  # or the unit that would add it has run already
        return before
    ctx.passes.gradient = before
    return None


def sum_parts(parts: Tensor) -> Tensor:
    """The gradient of the weight, (outputs, channels, side, side), from its parts."""
    return (parts[0] if len(parts) == 1 else parts.sum(0)).permute(0, 3, 1, 2)


def _channels_last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


def run_convolution(
    maps: Tensor,
    weight: Tensor,
    stride: int,
    backwards: bool,
    models: int,
    plus: Tensor | None = None,
) -> Tensor:
    """The convolution with bfloat16 weights, or its gradient with respect to the input maps; and `plus`."""
    count, channels, high, wide = maps.shape
    maps, weight = _channels_last(maps), _channels_last(weight)
    outputs, side = weight.shape[1] if backwards else len(weight) // models, weight.shape[2]
    if is_large(maps.shape, outputs, side, stride):
        return conv3x3.convolve_64(maps, weight, plus, backwards=backwards, models=models)
    if backwards:
        tile = choose_tile(count, channels, outputs, high, wide, times=stride**2, models=models)
    else:
        tile = choose_tile(count, channels, outputs, high // stride, wide // stride, models=models)
    assert tile is not None
    return convolution.convolve(maps, weight, tile, stride=stride, plus=plus, backwards=backwards, models=models)


_convolve = torch.library.custom_op(
    "iblurry::convolve",
    lambda maps, weight, stride, backwards, models: run_convolution(maps, weight, stride, backwards, models),
    mutates_args=(),
    schema="(Tensor maps, Tensor weight, int stride, bool backwards, int models) -> Tensor",
)


@_convolve.register_fake
def _(maps: Tensor, weight: Tensor, stride: int, backwards: bool, models: int) -> Tensor:
    count, _, high, wide = maps.shape
    if backwards:
        return _channels_last(maps.new_empty(count, weight.shape[1], high * stride, wide * stride))
    return _channels_last(maps.new_empty(count, len(weight) // models, high // stride, wide // stride))


@torch.library.custom_op(
    "iblurry::weight_gradient",
    mutates_args=(),
    schema="(Tensor grads, Tensor maps, int side, int stride, int models) -> Tensor",
)
def _weight_gradient(grads: Tensor, maps: Tensor, side: int, stride: int, models: int) -> Tensor:
    return weight_gradient(_channels_last(grads), _channels_last(maps), side, stride, models)


@_weight_gradient.register_fake
def _(grads: Tensor, maps: Tensor, side: int, stride: int, models: int) -> Tensor:
    parts = plan_tiles(grads.shape, maps.shape[1], side, stride, models).parts
    return grads.new_empty(parts, models * grads.shape[1], side, side, maps.shape[1], dtype=torch.float32)
