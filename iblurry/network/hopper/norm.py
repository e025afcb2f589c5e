"""Batch norm in training mode with ReLU and a sum behind it, for one model or several stacked ones; and its gradient.

Maps are bfloat16 and channels last, one model behind the other. A pass over them is two kernels: partial sums, then the
maps. Both go through the maps in the opposite order, so that the second begins with what the first left in the cache.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton import language as tl

ROWS = 64  # pixels that a block has in registers at a time
ACROSS = 64  # channels of a block
BLOCKS = 1024  # that keep the device busy
MOST_PARTS = 64


class NormFunction(torch.autograd.Function):
    """relu(norm(maps)) + plus."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None, state: NormState, models: int
    ) -> Tensor:
        maps = maps.contiguous(memory_format=torch.channels_last)
        plan = NormPlan.of(maps, models)
        done, sums = torch.empty_like(maps), plan.new_sums(maps)
        moments = maps.new_empty(2, models * maps.shape[1], dtype=torch.float32)
        _sum_maps[plan.grid](maps, sums, plan.rows, plan.each, **plan.constants)
        _normalise[plan.grid](
            maps,
            maps if plus is None else plus.contiguous(memory_format=torch.channels_last),
            sums,
            weight,
            bias,
            *state.running,
            moments,
            done,
            plan.rows,
            plan.each,
            state.eps,
            state.momentum,
            models,
            ADDS=plus is not None,
            **plan.constants,
        )
        ctx.save_for_backward(maps, weight, bias, moments)
        ctx.plan, ctx.adds, ctx.models = plan, plus is not None, models
        return done

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, bias, moments = ctx.saved_tensors
        grads, plan = grads.contiguous(memory_format=torch.channels_last), ctx.plan
        before, sums = torch.empty_like(maps), plan.new_sums(maps)
        slopes = torch.empty_like(moments)  # of the bias, of the weight
        given = grads, maps, weight, bias, moments, sums
        _sum_slopes[plan.grid](*given, plan.rows, plan.each, ctx.models, **plan.constants)
        _slope_maps[plan.grid](*given, slopes, before, plan.rows, plan.each, ctx.models, **plan.constants)
        return before, slopes[1], slopes[0], grads if ctx.adds else None, None, None


class NormState(NamedTuple):
    """What batch norm keeps beside its weights."""

    running: tuple[Tensor, Tensor]  # mean and variance, (models * channels,); changed by a forward pass
    eps: float
    momentum: float


class NormPlan(NamedTuple):
    """How maps are divided into blocks: by model, by rows (pixels) and by channels."""

    rows: int  # pixels of a model
    each: int  # of a block
    parts: int  # blocks that share a model's channel
    grid: tuple[int]
    constants: dict[str, Any]

    @classmethod
    def of(cls, maps: Tensor, models: int) -> NormPlan:
        count, channels, high, wide = maps.shape
        assert channels % ACROSS == 0, "asked before"
        rows, beside = count // models * high * wide, channels // ACROSS * models
        parts = max(1, min(BLOCKS // beside, -(-rows // ROWS), MOST_PARTS))
        each = -(-rows // (parts * ROWS)) * ROWS
        parts = -(-rows // each)
        constants = {"CHANNELS": channels, "PARTS": parts, "PADDED": triton.next_power_of_2(parts)}
        constants |= {"ROWS": ROWS, "ACROSS": ACROSS, "num_warps": 4}
        return cls(rows, each, parts, (beside * parts,), constants)

    def new_sums(self, maps: Tensor) -> Tensor:
        """Room for two sums of each block."""
        return maps.new_empty(2 * self.grid[0] * ACROSS, dtype=torch.float32)


@triton.jit
def _place(block, CHANNELS: tl.constexpr, PARTS: tl.constexpr, ACROSS: tl.constexpr):
    """(model, part, channels) of a block; those of a model are neighbours, and so are those of its rows."""
    first = block % (CHANNELS // ACROSS) * ACROSS
    block = block // (CHANNELS // ACROSS)
    return block // PARTS, block % PARTS, first + tl.arange(0, ACROSS)


@triton.jit
def _put_sums(sums, first, second, model, part, channels, CHANNELS: tl.constexpr, PARTS: tl.constexpr):
    to = sums + (model * PARTS + part) * 2 * CHANNELS + channels
    tl.store(to, tl.sum(first, 0))
    tl.store(to + CHANNELS, tl.sum(second, 0))


@triton.jit
def _total(sums, model, channels, CHANNELS: tl.constexpr, PARTS: tl.constexpr, PADDED: tl.constexpr):
    """Of all parts, in a fixed order."""
    parts = tl.arange(0, PADDED)[:, None]
    place = sums + (model * PARTS + parts) * 2 * CHANNELS + channels[None, :]
    first = tl.sum(tl.load(place, mask=parts < PARTS, other=0.0), 0)
    second = tl.sum(tl.load(place + CHANNELS, mask=parts < PARTS, other=0.0), 0)
    return first, second


@triton.jit
def _sum_maps(
    maps, sums, rows, each, CHANNELS: tl.constexpr, PARTS: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    ACROSS: tl.constexpr,
):  # fmt: skip
    """Sums of x - k and (x - k)^2, where k is the model's first pixel: a large mean takes no digits of the variance."""
    model, part, channels = _place(tl.program_id(0), CHANNELS, PARTS, ACROSS)
    maps += model.to(tl.int64) * rows * CHANNELS + channels[None, :]
    centre = tl.load(maps).to(tl.float32)
    first = tl.zeros([ROWS, ACROSS], tl.float32)
    second = tl.zeros([ROWS, ACROSS], tl.float32)
    end = tl.minimum((part + 1) * each, rows)
    for start in range(part * each, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        off = tl.load(maps + row * CHANNELS, mask=row < end, other=0.0).to(tl.float32) - centre
        off = tl.where(row < end, off, 0.0)
        first += off
        second += off * off
    _put_sums(sums, first, second, model, part, channels, CHANNELS, PARTS)


@triton.jit
def _normalise(
    maps, plus, sums, weight, bias, running_mean, running_var, moments, done, rows, each, eps, momentum, models,
    CHANNELS: tl.constexpr, PARTS: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, ACROSS: tl.constexpr,
    ADDS: tl.constexpr,
):  # fmt: skip
    model, part, channels = _place(tl.num_programs(0) - 1 - tl.program_id(0), CHANNELS, PARTS, ACROSS)
    own = model * CHANNELS + channels
    offset = model.to(tl.int64) * rows * CHANNELS + channels[None, :]
    first, second = _total(sums, model, channels, CHANNELS, PARTS, PADDED)
    off = first / rows
    mean = tl.load(maps + model.to(tl.int64) * rows * CHANNELS + channels).to(tl.float32) + off
    var = tl.maximum(second / rows - off * off, 0.0)
    inverse = tl.rsqrt(var + eps)
    if part == 0:
        tl.store(moments + own, mean)
        tl.store(moments + models * CHANNELS + own, inverse)
        before = tl.load(running_mean + own)
        tl.store(running_mean + own, before + momentum * (mean - before))
        before = tl.load(running_var + own)
        tl.store(running_var + own, before + momentum * (var * (rows / (rows - 1.0)) - before))
    scale = (tl.load(weight + own) * inverse)[None, :]
    shift = tl.load(bias + own)[None, :]
    end = tl.minimum((part + 1) * each, rows)
    for start in range(part * each, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        place = offset + row * CHANNELS
        value = (tl.load(maps + place, mask=row < end).to(tl.float32) - mean[None, :]) * scale + shift
        value = tl.maximum(value, 0.0).to(tl.bfloat16)
        if ADDS:
            value = (value.to(tl.float32) + tl.load(plus + place, mask=row < end).to(tl.float32)).to(tl.bfloat16)
        tl.store(done + place, value, mask=row < end)


@triton.jit
def _through_relu(grads, maps, place, is_there, mean, inverse, scale, shift):
    """The gradient before the ReLU, and the normalised maps."""
    off = tl.load(maps + place, mask=is_there, other=0.0).to(tl.float32) - mean
    grad = tl.load(grads + place, mask=is_there, other=0.0).to(tl.float32)
    return tl.where(off * scale + shift > 0, grad, 0.0), off * inverse


@triton.jit
def _sum_slopes(
    grads, maps, weight, bias, moments, sums, rows, each, models, CHANNELS: tl.constexpr, PARTS: tl.constexpr,
    PADDED: tl.constexpr, ROWS: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    model, part, channels = _place(tl.program_id(0), CHANNELS, PARTS, ACROSS)
    own = model * CHANNELS + channels
    offset = model.to(tl.int64) * rows * CHANNELS + channels[None, :]
    mean = tl.load(moments + own)[None, :]
    inverse = tl.load(moments + models * CHANNELS + own)[None, :]
    scale = tl.load(weight + own)[None, :] * inverse
    shift = tl.load(bias + own)[None, :]
    first = tl.zeros([ROWS, ACROSS], tl.float32)
    second = tl.zeros([ROWS, ACROSS], tl.float32)
    end = tl.minimum((part + 1) * each, rows)
    for start in range(part * each, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        grad, value = _through_relu(grads, maps, offset + row * CHANNELS, row < end, mean, inverse, scale, shift)
        first += grad
        second += grad * value
    _put_sums(sums, first, second, model, part, channels, CHANNELS, PARTS)


@triton.jit
def _slope_maps(
    grads, maps, weight, bias, moments, sums, slopes, before, rows, each, models, CHANNELS: tl.constexpr,
    PARTS: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    model, part, channels = _place(tl.num_programs(0) - 1 - tl.program_id(0), CHANNELS, PARTS, ACROSS)
    own = model * CHANNELS + channels
    offset = model.to(tl.int64) * rows * CHANNELS + channels[None, :]
    first, second = _total(sums, model, channels, CHANNELS, PARTS, PADDED)
    if part == 0:
        tl.store(slopes + own, first)
        tl.store(slopes + models * CHANNELS + own, second)
    mean = tl.load(moments + own)[None, :]
    inverse = tl.load(moments + models * CHANNELS + own)[None, :]
    scale = tl.load(weight + own)[None, :] * inverse
    shift = tl.load(bias + own)[None, :]
    along = (first / rows)[None, :]
    towards = (second / rows)[None, :]
    end = tl.minimum((part + 1) * each, rows)
    for start in range(part * each, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        place = offset + row * CHANNELS
        grad, value = _through_relu(grads, maps, place, row < end, mean, inverse, scale, shift)
        tl.store(before + place, (scale * (grad - along - value * towards)).to(tl.bfloat16), mask=row < end)
