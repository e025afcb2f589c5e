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

from iblurry.engine.hopper.convolution import PROCESSORS
from iblurry.engine.hopper.launch import launch
from iblurry.network.bodies import PassedGradient

ROWS = 64  # pixels that a block has in registers at a time
ACROSS = 64  # channels of a block
BLOCKS = 8 * PROCESSORS  # of all models: two rounds of those that the multiprocessors have room for
CONSTANTS = {"ROWS": ROWS, "ACROSS": ACROSS, "num_warps": 4}
PARTS = 128  # that are summed up, at most; every block reads the sums of all
SOME = 16  # parts, for which there is a kernel that reads no more
FINER = 2 * PROCESSORS  # parts of maps that are only read and written, where there are at least LONG steps for each
LONG = 4
FEW, DEEP = 2 * PROCESSORS, 6  # blocks that are so few, with twice as many steps, need more loads under way


class NormState(NamedTuple):
    """What batch norm keeps beside its weights."""

    running: tuple[Tensor, Tensor]  # mean and variance, (models * channels,); changed by a forward pass
    eps: float
    momentum: float


class NormFunction(torch.autograd.Function):
    """relu(norm(maps)) + plus."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        weight: Tensor,
        bias: Tensor,
        plus: Tensor | None,
        state: NormState,
        models: int,
        passed: PassedGradient | None = None,
    ) -> Tensor:
        """`passed` takes the gradient for `plus`, if it is given."""
        done, moments = normalise(maps, weight, bias, plus, state, models)
        ctx.save_for_backward(maps, weight, bias, moments)
        ctx.adds, ctx.models, ctx.passed = plus is not None, models, passed
        return done

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, bias, moments = ctx.saved_tensors
        grads = _channels_last(grads)
        before, slopes = differentiate(grads, maps, weight, bias, moments, ctx.models)
        if ctx.passed is not None:
            ctx.passed.gradient = grads
        for_plus = grads if ctx.adds and ctx.passed is None else None
        return before, slopes[1], slopes[0], for_plus, None, None, None


def normalise(
    maps: Tensor,
    weight: Tensor,
    bias: Tensor,
    plus: Tensor | None,
    state: NormState,
    models: int,
) -> tuple[Tensor, Tensor]:
    """relu(norm(maps)) + plus, and (2, models * channels): means and inverse deviations."""
    maps = _channels_last(maps)
    plan, summed = NormPlan.finer(maps, models), NormPlan.of(maps, models)
    done, moments, sums = torch.empty_like(maps), weight.new_empty(2, len(weight)), summed.new_sums(maps)
    launch(_sum_maps, summed.blocks, maps, sums, *summed.sizes, **summed.constants)
    _, each, _, parts = summed.sizes
    added = maps if plus is None else _channels_last(plus)
    given = maps, added, sums, parts, each, weight, bias, *state.running, moments, done, state.eps, state.momentum
    constants = plan.constants | {"PARTS": room_for(parts), "ADDS": plus is not None}
    launch(_normalise, plan.blocks, *given, len(weight), *plan.sizes, **constants)
    return done, moments


def differentiate(
    grads: Tensor, maps: Tensor, weight: Tensor, bias: Tensor, moments: Tensor, models: int
) -> tuple[Tensor, Tensor]:
    """The gradient for the maps, and (2, models * channels): those for the bias and for the weight."""
    grads, maps = _channels_last(grads), _channels_last(maps)
    plan, summed = NormPlan.finer(maps, models), NormPlan.of(maps, models)
    before, sums, slopes = torch.empty_like(maps), summed.new_sums(maps), torch.empty_like(moments)
    given = grads, maps, weight, bias, moments, sums
    launch(_sum_slopes, summed.blocks, *given, len(weight), *summed.sizes, **summed.constants)
    parts = summed.sizes[-1]
    found, room = (parts, slopes, before, len(weight)), room_for(parts)
    launch(_slope_maps, plan.blocks, *given, *found, *plan.sizes, PARTS=room, **plan.constants)
    return before, slopes


def room_for(parts: int) -> int:
    """How many parts a kernel reads that adds up so many: one of two numbers, so that few kernels are compiled."""
    return SOME if parts <= SOME else PARTS


def _channels_last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


class NormPlan(NamedTuple):
    """How maps are divided into blocks: by model, by rows (pixels) and by channels."""

    blocks: int
    sizes: tuple[int, int, int, int]  # rows of a model, rows of a block, channels, blocks that share a channel

    @classmethod
    def of(cls, maps: Tensor, models: int, most: int = PARTS) -> NormPlan:
        """Plans a kernel that sums up in at most so many parts."""
        count, channels, high, wide = maps.shape
        assert channels % ACROSS == 0, "asked before"
        rows, beside = count // models * high * wide, channels // ACROSS * models
        parts = max(1, min(BLOCKS // beside, -(-rows // ROWS), most))
        each = -(-rows // (parts * ROWS)) * ROWS
        parts = -(-rows // each)
        return cls(beside * parts, (rows, each, channels, parts))

    @classmethod
    def finer(cls, maps: Tensor, models: int) -> NormPlan:
        """Plans a kernel that sums up nothing."""
        count, _, high, wide = maps.shape
        return cls.of(maps, models, max(PARTS, min(FINER, count // models * high * wide // (LONG * ROWS))))

    @property
    def constants(self) -> dict[str, int]:
        """Constants of a kernel with this plan. STAGES: a step and the loads of those that follow it."""
        is_deep = self.blocks <= FEW and self.sizes[1] >= 2 * LONG * ROWS
        return CONSTANTS | {"STAGES": DEEP if is_deep else 3}

    def new_sums(self, maps: Tensor) -> Tensor:
        """Room for two sums of each block."""
        return maps.new_empty(2 * self.blocks * ACROSS, dtype=torch.float32)


_compiled_once = triton.jit(do_not_specialize=["rows", "parts", "total", "summed_parts", "summed_each"])  # for any size


@triton.jit
def _place(block, depth, parts, ACROSS: tl.constexpr):
    """(model, part, channels) of a block; those of a model are neighbours, and so are those of its rows."""
    first = block % (depth // ACROSS) * ACROSS
    block = block // (depth // ACROSS)
    return block // parts, block % parts, first + tl.arange(0, ACROSS)


@triton.jit
def _put_sums(sums, first, second, model, part, channels, depth, parts):
    to = sums + (model * parts + part) * 2 * depth + channels
    tl.store(to, tl.sum(first, 0))
    tl.store(to + depth, tl.sum(second, 0))


@triton.jit
def _total(sums, model, channels, depth, parts, PARTS: tl.constexpr):
    """Sums up all parts in a fixed order."""
    part = tl.arange(0, PARTS)[:, None]
    place = sums + (model * parts + part) * 2 * depth + channels[None, :]
    first = tl.sum(tl.load(place, mask=part < parts, other=0.0), 0)
    second = tl.sum(tl.load(place + depth, mask=part < parts, other=0.0), 0)
    return first, second


@triton.jit
def _moments(sums, model, channels, rows, depth, parts, each, PARTS: tl.constexpr):
    """Mean and variance from the sums of `_sum_maps`, in a fixed order."""
    part = tl.arange(0, PARTS)[:, None]
    is_there = part < parts
    place = sums + (model * parts + part) * 2 * depth + channels[None, :]
    first = tl.load(place, mask=is_there, other=0.0)
    second = tl.load(place + depth, mask=is_there, other=0.0)
    held = tl.maximum(tl.minimum(rows - part * each, each), 1).to(tl.float32)
    mean = tl.sum(first, 0) / rows
    off = first / held - mean[None, :]
    return mean, tl.sum(tl.where(is_there, second + held * off * off, 0.0), 0) / rows


@_compiled_once
def _sum_maps(maps, sums, rows, each, depth, parts, ROWS: tl.constexpr, ACROSS: tl.constexpr, STAGES: tl.constexpr):
    """Of each part: the sum of every channel, and that of squared deviations from the part's own mean.

    By sums of x - k, where k is the model's first pixel, so a large mean takes no digits of them.
    """
    model, part, channels = _place(tl.program_id(0), depth, parts, ACROSS)
    maps += model.to(tl.int64) * rows * depth + channels[None, :]
    centre = tl.load(maps).to(tl.float32)
    first = tl.zeros([ROWS, ACROSS], tl.float32)
    second = tl.zeros([ROWS, ACROSS], tl.float32)
    end = tl.minimum((part + 1) * each, rows)
    for start in tl.range(part * each, end, ROWS, num_stages=STAGES):
        row = start + tl.arange(0, ROWS)[:, None]
        off = tl.load(maps + row * depth, mask=row < end, other=0.0).to(tl.float32) - centre
        off = tl.where(row < end, off, 0.0)
        first += off
        second += off * off
    held = (end - part * each).to(tl.float32)
    total = tl.sum(first, 0)
    to = sums + (model * parts + part) * 2 * depth + channels
    tl.store(to, total + held * tl.sum(centre, 0))
    tl.store(to + depth, tl.maximum(tl.sum(second, 0) - total * total / held, 0.0))


@_compiled_once
def _normalise(
    maps, plus, sums, summed_parts, summed_each, weight, bias, running_mean, running_var, moments, done, eps, momentum,
    total, rows, each, depth, parts, PARTS: tl.constexpr, ROWS: tl.constexpr, ACROSS: tl.constexpr,
    STAGES: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    model, part, channels = _place(tl.num_programs(0) - 1 - tl.program_id(0), depth, parts, ACROSS)
    own = model * depth + channels
    offset = model.to(tl.int64) * rows * depth + channels[None, :]
    mean, var = _moments(sums, model, channels, rows, depth, summed_parts, summed_each, PARTS)
    inverse = tl.rsqrt(var + eps)
    if part == 0:
        tl.store(moments + own, mean)
        tl.store(moments + total + own, inverse)
        before = tl.load(running_mean + own)
        tl.store(running_mean + own, before + momentum * (mean - before))
        before = tl.load(running_var + own)
        tl.store(running_var + own, before + momentum * (var * (rows / (rows - 1.0)) - before))
    scale = (tl.load(weight + own) * inverse)[None, :]
    shift = tl.load(bias + own)[None, :]
    end = tl.minimum((part + 1) * each, rows)
    for start in tl.range(part * each, end, ROWS, num_stages=STAGES):
        row = start + tl.arange(0, ROWS)[:, None]
        place = offset + row * depth
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


@_compiled_once
def _sum_slopes(
    grads,
    maps,
    weight,
    bias,
    moments,
    sums,
    total,
    rows,
    each,
    depth,
    parts,
    ROWS: tl.constexpr,
    ACROSS: tl.constexpr,
    STAGES: tl.constexpr,
):
    model, part, channels = _place(tl.program_id(0), depth, parts, ACROSS)
    own = model * depth + channels
    offset = model.to(tl.int64) * rows * depth + channels[None, :]
    mean = tl.load(moments + own)[None, :]
    inverse = tl.load(moments + total + own)[None, :]
    scale = tl.load(weight + own)[None, :] * inverse
    shift = tl.load(bias + own)[None, :]
    first = tl.zeros([ROWS, ACROSS], tl.float32)
    second = tl.zeros([ROWS, ACROSS], tl.float32)
    end = tl.minimum((part + 1) * each, rows)
    for start in tl.range(part * each, end, ROWS, num_stages=STAGES):
        row = start + tl.arange(0, ROWS)[:, None]
        grad, value = _through_relu(grads, maps, offset + row * depth, row < end, mean, inverse, scale, shift)
        first += grad
        second += grad * value
    _put_sums(sums, first, second, model, part, channels, depth, parts)


@_compiled_once
def _slope_maps(
    grads, maps, weight, bias, moments, sums, summed_parts, slopes, before, total, rows, each, depth, parts,
    PARTS: tl.constexpr, ROWS: tl.constexpr, ACROSS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    model, part, channels = _place(tl.num_programs(0) - 1 - tl.program_id(0), depth, parts, ACROSS)
    own = model * depth + channels
    offset = model.to(tl.int64) * rows * depth + channels[None, :]
    first, second = _total(sums, model, channels, depth, summed_parts, PARTS)
    if part == 0:
        tl.store(slopes + own, first)
        tl.store(slopes + total + own, second)
    mean = tl.load(moments + own)[None, :]
    inverse = tl.load(moments + total + own)[None, :]
    scale = tl.load(weight + own)[None, :] * inverse
    shift = tl.load(bias + own)[None, :]
    along = (first / rows)[None, :]
    towards = (second / rows)[None, :]
    end = tl.minimum((part + 1) * each, rows)
    for start in tl.range(part * each, end, ROWS, num_stages=STAGES):
        row = start + tl.arange(0, ROWS)[:, None]
        place = offset + row * depth
        grad, value = _through_relu(grads, maps, place, row < end, mean, inverse, scale, shift)
        tl.store(before + place, (scale * (grad - along - value * towards)).to(tl.bfloat16), mask=row < end)
