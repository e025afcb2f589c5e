"""The gradient of a convolution with respect to its weights, or a step of SGD by it: one kernel, in a fixed order."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from iblurry.engine.hopper.conv3x3 import fetch_rows
from iblurry.engine.hopper.convolution import (
    ENOUGH,
    PROCESSORS,
    describe_maps,
    describe_stack,
    group_rows,
    shifted,
)
from iblurry.engine.hopper.launch import launch

if TYPE_CHECKING:
    from iblurry.network.bodies import ConvUnit

PIXELS = 128  # of one step
LEAST = 64  # channels of one block, on both sides
LONG = 8  # steps of a large block, at least, where the sum is divided
FEW = 512  # pixels of a model
MANY = 8 * ENOUGH  # blocks of stacked models: several rounds of them, so that the last one matters little
NO_STEP = {"NESTEROV": False, "UPDATES": False, "PREFETCHES": False}


class TilePlan(NamedTuple):
    """How the work is divided into blocks."""

    parts: int  # of the sum over the pixels
    each: int  # steps of a part
    steps: int  # of all parts
    images: int  # of a step
    rows: int
    across: int  # channels of a block, on both sides
    taps: int = 1  # of a block: one, or a column of three


def plan_tiles(grads: torch.Size, channels: int, side: int, stride: int, models: int = 1) -> TilePlan:
    """For output gradients of this shape and so many input channels: columns of taps where there are many maps, else
    large blocks where there is enough for them.

    The plan is of one of the stacked models, which have an equal share of the gradients each.
    """
    if models == 1 and (columns := _plan_columns(grads, channels, side, stride)) is not None:
        return columns
    count, outputs, high, wide = grads[0] // models, *grads[1:]
    large = models * _blocks(channels, outputs, side, 2 * LEAST)
    is_long = models == 1 and large * count * high * wide >= LONG * ENOUGH * PIXELS // 2
    across = 2 * LEAST if large >= ENOUGH or is_long else LEAST
    images, rows, steps = _steps(grads, models, PIXELS * LEAST // across)
    wanted = ENOUGH if models == 1 else MANY
    each = -(-steps // max(1, min(steps, wanted // (models * _blocks(channels, outputs, side, across)))))
    return TilePlan(-(-steps // each), each, steps, images, rows, across)


def _plan_columns(grads: torch.Size, channels: int, side: int, stride: int) -> TilePlan | None:
    """Plans blocks with a column of taps each; None where they do not fit, are too few or would have too few steps."""
    count, outputs, high, wide = grads
    rows, blocks = PIXELS // wide, _blocks(channels, outputs, side, LEAST) // 3
    parts = PROCESSORS // blocks if blocks else 0
    if (side, stride) != (3, 1) or wide not in (16, 32, 64) or high % rows or parts * blocks < ENOUGH:
        return None
    steps = count * (high // rows)
    each = -(-steps // parts)
    return TilePlan(-(-steps // each), each, steps, 1, rows, LEAST, 3) if each >= LONG else None


def plan_descent(grads: torch.Size, channels: int, side: int, models: int) -> TilePlan:
    """The same for steps of SGD: a block has the sum over all pixels. Small ones wait less for memory."""
    outputs = grads[1]
    is_wide = models * _blocks(channels, outputs, side, 2 * LEAST) >= 2 * ENOUGH
    across = 2 * LEAST if is_wide and not is_memory_bound(grads, models) else LEAST
    images, rows, steps = _steps(grads, models, PIXELS // 2)
    return TilePlan(1, steps, steps, images, rows, across)


def is_memory_bound(grads: torch.Size, models: int) -> bool:
    """Whether there are so few pixels that a step's weights take longer to load and store than to compute."""
    count, _, high, wide = grads
    return count // models * high * wide <= FEW


def _steps(grads: torch.Size, models: int, pixels: int) -> tuple[int, int, int]:
    """Returns the images and the rows of a step of so many pixels, and how many steps there are."""
    count, _, high, wide = grads
    grouped = group_rows(pixels, high, wide)
    assert grouped is not None, "asked before"
    images, rows = grouped
    return images, rows, -(-(count // models) // images) * (high // rows)


def _blocks(channels: int, outputs: int, side: int, across: int) -> int:
    """Counts the blocks of one part; 0 where such blocks do not fit."""
    if channels % across or outputs % across:
        return 0
    return side * side * (channels // across) * (outputs // across)


def can_descend(channels: int, outputs: int, side: int, models: int) -> bool:
    """Whether there are enough blocks that have the sum over all pixels each."""
    return models * _blocks(channels, outputs, side, LEAST) >= 2 * ENOUGH


def weight_gradient(grads: Tensor, maps: Tensor, side: int, stride: int, models: int = 1) -> Tensor:
    """(parts, models * outputs, side, side, channels) float32, to be summed over the parts.

    `grads` are those of the output maps, `maps` the input maps; both bfloat16 and channels last, the maps of the
    stacked models one behind the other.
    """
    plan = plan_tiles(grads.shape, maps.shape[1], side, stride, models)
    done = torch.empty(plan.parts, models * grads.shape[1], side, side, maps.shape[1], device=grads.device)
    if plan.taps == 3:
        _launch_columns(grads, maps, plan, done)
        return done
    _launch(grads, maps, plan, side, stride, models, done, done, done, done, 0.0, 0.0, **NO_STEP)
    return done


def _launch_columns(grads: Tensor, maps: Tensor, plan: TilePlan, done: Tensor) -> None:
    (outputs, high, wide), channels = grads.shape[1:], maps.shape[1]
    launch(
        _column_gradient,
        _blocks(channels, outputs, 3, LEAST) // 3 * plan.parts,
        describe_maps(grads, 1, 1, plan.rows, LEAST),
        describe_maps(maps, 1, 1, plan.rows, LEAST),
        describe_maps(maps, 1, 1, 2, LEAST),
        done,
        plan.steps,
        plan.each,
        CHANNELS=channels,
        OUTPUTS=outputs,
        HIGH=high,
        WIDE=wide,
        ROWS=plan.rows,
        STAGES=3,
        num_warps=4,
    )


class Descent(NamedTuple):
    """A weight whose step of SGD is part of its gradient's kernel, so that the gradient is never written."""

    weight: Tensor
    rounded: Tensor  # to bfloat16
    momentum: Tensor
    lr: Tensor  # read at each step
    friction: float  # momentum's
    decay: float  # weight decay
    nesterov: bool

    @staticmethod
    def fits(unit: ConvUnit, models: int) -> bool:
        """Whether the gradient's kernel can take the steps of so many models."""
        conv = unit.convolution
        return can_descend(conv.in_channels, conv.out_channels, conv.kernel_size[0], models)

    def restart(self) -> None:
        """After the weight was changed by others."""
        self.rounded.copy_(self.weight)


def descend(grads: Tensor, maps: Tensor, stride: int, models: int, descent: Descent) -> None:
    """The same gradient, but the weight takes its step of SGD; where a block has the whole sum."""
    side = descent.weight.shape[2]
    plan = plan_descent(grads.shape, maps.shape[1], side, models)
    changed = descent.weight, descent.momentum, descent.rounded, descent.lr
    numbers = {"NESTEROV": descent.nesterov, "UPDATES": True, "PREFETCHES": is_memory_bound(grads.shape, models)}
    _launch(grads, maps, plan, side, stride, models, *changed, descent.friction, descent.decay, **numbers)


def _launch(
    grads: Tensor, maps: Tensor, plan: TilePlan, side: int, stride: int, models: int, *given: Any, **constants: bool
) -> None:
    outputs, high, wide = grads.shape[1:]
    channels = maps.shape[1]
    launch(
        _weight_gradient,
        _blocks(channels, outputs, side, plan.across) * plan.parts * models,
        describe_stack(grads, models, plan.images, plan.rows, plan.across),
        describe_maps(maps, stride, plan.images, plan.rows, plan.across),
        *given,
        len(grads) // models,
        CHANNELS=channels,
        OUTPUTS=outputs,
        HIGH=high,
        SIDE=side,
        STRIDE=stride,
        IMAGES=plan.images,
        ROWS=plan.rows,
        PIXELS=plan.images * plan.rows * wide,
        ACROSS=plan.across,
        STEPS=plan.steps,
        EACH=plan.each,
        MODELS=models,
        STAGES=3,
        num_warps=4 * plan.across // LEAST,
        **constants,
    )


@gluon.jit
def _fetch(
    grads, maps, gs, xs, arrivals, k, slot, model, count, tap, output, channel, CHANNELS: gl.constexpr,
    HIGH: gl.constexpr, SIDE: gl.constexpr, STRIDE: gl.constexpr, IMAGES: gl.constexpr, ROWS: gl.constexpr, wanted,
):  # fmt: skip
    """Starts loading one group of pixels: their gradients, and the input maps shifted by the tap.

    Behind the `count` images of the model there are gradients of 0, whatever maps are loaded beside them.
    """
    row = (k % (HIGH // ROWS)) * ROWS
    image = (k // (HIGH // ROWS)) * IMAGES
    down = tap // SIDE - SIDE // 2
    across = tap % SIDE - SIDE // 2
    arrival = arrivals.index(slot)
    mbarrier.expect(arrival, grads.block_type.nbytes + maps.block_type.nbytes, pred=wanted)
    tma.async_copy_global_to_shared(grads, [model, image, row, 0, output], arrival, gs.index(slot), pred=wanted)
    shifted(maps, xs.index(slot), arrival, model * count + image, row, channel, down, across, CHANNELS, STRIDE, wanted)


@gluon.jit(do_not_specialize=["count"])
def _weight_gradient(
    grads, maps, done, momentum, rounded, lr, friction, decay, count, CHANNELS: gl.constexpr, OUTPUTS: gl.constexpr,
    HIGH: gl.constexpr, SIDE: gl.constexpr, STRIDE: gl.constexpr, IMAGES: gl.constexpr, ROWS: gl.constexpr,
    PIXELS: gl.constexpr, ACROSS: gl.constexpr, STEPS: gl.constexpr, EACH: gl.constexpr, MODELS: gl.constexpr,
    STAGES: gl.constexpr, NESTEROV: gl.constexpr, UPDATES: gl.constexpr, PREFETCHES: gl.constexpr,
    num_warps: gl.constexpr,
):  # fmt: skip
    """A product of (outputs, pixels) and (pixels, channels) for one tap and some of the pixels.

    UPDATES: `done` is the weight, which takes its step.
    """
    block = gl.program_id(0)
    channel = (block % (CHANNELS // ACROSS)) * ACROSS
    block = block // (CHANNELS // ACROSS)
    tap = block % (SIDE * SIDE)
    block = block // (SIDE * SIDE)
    output = (block % (OUTPUTS // ACROSS)) * ACROSS
    block = block // (OUTPUTS // ACROSS)
    part = block // MODELS  # the blocks of a model are neighbours: they read the same maps
    model = block % MODELS
    begin = part * EACH
    steps = gl.minimum(EACH, STEPS - begin)
    LINE: gl.constexpr = SIDE * SIDE * CHANNELS
    first = ((part * MODELS + model) * OUTPUTS + output).to(gl.int64) * LINE + tap * CHANNELS + channel
    done += first
    gs = gl.allocate_shared_memory(grads.dtype, [STAGES] + grads.block_type.shape, grads.layout)  # noqa: RUF005
    xs = gl.allocate_shared_memory(maps.dtype, [STAGES] + maps.block_type.shape, maps.layout)  # noqa: RUF005
    arrivals = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(arrivals.index(s), count=1)
    fence_async_shared()
    for s in gl.static_range(STAGES - 1):
        _fetch(
            grads, maps, gs, xs, arrivals, begin + s, s, model, count, tap, output, channel, CHANNELS, HIGH, SIDE,
            STRIDE, IMAGES, ROWS, s < steps,
        )  # fmt: skip
    if PREFETCHES:
        _prefetch_l2(done, momentum + first, LINE, ACROSS, num_warps)

    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, ACROSS, 16])
    total = warpgroup_mma_init(gl.zeros([ACROSS, ACROSS], gl.float32, accumulator))
    for k in range(steps):
        slot = k % STAGES
        mbarrier.wait(arrivals.index(slot), (k // STAGES) & 1)
        left = gs.index(slot).reshape([PIXELS, ACROSS]).permute([1, 0])
        total = warpgroup_mma(left, xs.index(slot).reshape([PIXELS, ACROSS]), total, is_async=True)
        total = warpgroup_mma_init(warpgroup_mma_wait(1, deps=[total]))  # the one before is done: its slot is free
        ahead = k + STAGES - 1
        _fetch(
            grads, maps, gs, xs, arrivals, begin + ahead, ahead % STAGES, model, count, tap, output, channel,
            CHANNELS, HIGH, SIDE, STRIDE, IMAGES, ROWS, ahead < steps,
        )  # fmt: skip
    sums = warpgroup_mma_wait(0, deps=[total])
    for s in gl.static_range(STAGES):
        mbarrier.invalidate(arrivals.index(s))
    if UPDATES:
        _take_steps(
            sums, done, momentum + first, rounded + first, lr, friction, decay, LINE, NESTEROV,
            2 if ACROSS == 128 else 1, num_warps,
        )  # fmt: skip
    else:
        gl.store(done + _places(sums, LINE), sums)


@gluon.jit
def _prefetch_l2(weights, momentum, LINE: gl.constexpr, ACROSS: gl.constexpr, WARPS: gl.constexpr):
    """Starts loading what the steps will change into the L2 cache: a thread for each row of a block."""
    row = gl.arange(0, 2 * ACROSS, gl.BlockedLayout([1], [32], [WARPS], [0]))
    place = row % ACROSS * LINE
    gl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0;",
        "=r,l,r",
        [gl.where(row < ACROSS, weights + place, momentum + place), ACROSS * 4],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _take_steps(
    slopes, weights, momentum, rounded, lr, friction, decay, LINE: gl.constexpr, NESTEROV: gl.constexpr,
    HALVES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Takes steps in halves of halves: registers for a whole block at once would leave no room for a second block."""
    WIDE: gl.constexpr = slopes.shape[1] // 2
    if HALVES:
        left, right = slopes.reshape([slopes.shape[0], 2, WIDE]).permute([0, 2, 1]).split()
        _take_steps(left, weights, momentum, rounded, lr, friction, decay, LINE, NESTEROV, HALVES - 1, WARPS)
        _take_steps(
            right, weights + WIDE, momentum + WIDE, rounded + WIDE, lr, friction, decay, LINE, NESTEROV, HALVES - 1,
            WARPS,
        )  # fmt: skip
    else:
        ALONG: gl.constexpr = WIDE // 2  # threads of a row, with four values each: whole lines of memory
        by_rows: gl.constexpr = gl.BlockedLayout([1, 4], [32 // ALONG, ALONG], [WARPS, 1], [1, 0])
        slopes = gl.convert_layout(slopes, by_rows)
        _take_step(slopes, weights, momentum, rounded, lr, friction, decay, LINE, NESTEROV)


@gluon.jit
def _places(values, LINE: gl.constexpr):
    """Where the values of a block lie, from its first one, in rows of this length."""
    layout: gl.constexpr = values.type.layout
    row = gl.arange(0, values.shape[0], gl.SliceLayout(1, layout))
    return row[:, None] * LINE + gl.arange(0, values.shape[1], gl.SliceLayout(0, layout))[None, :]


@gluon.jit
def _take_step(slopes, weights, momentum, rounded, lr, friction, decay, LINE: gl.constexpr, NESTEROV: gl.constexpr):
    """A step of SGD, as torch's."""
    place = _places(slopes, LINE)
    weight = gl.load(weights + place)
    slopes = slopes + decay * weight
    speed = friction * gl.load(momentum + place) + slopes
    gl.store(momentum + place, speed)
    if NESTEROV:
        speed = slopes + friction * speed
    weight = weight - gl.load(lr) * speed
    gl.store(rounded + place, weight.to(gl.bfloat16))
    gl.store(weights + place, weight)


# Where there are many maps, a block has a column of three taps: they read the same pixels, one row further down each
# time, so that each is loaded for three products instead of one.


@gluon.jit(do_not_specialize=["steps", "each"])
def _column_gradient(
    grads, maps, edges, done, steps, each, CHANNELS: gl.constexpr, OUTPUTS: gl.constexpr, HIGH: gl.constexpr,
    WIDE: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """Products of (outputs, pixels) and (pixels, channels), 64 of both, for three taps and `each` of the steps."""
    block = gl.program_id(0)
    across = block % 3
    block = block // 3
    channel = block % (CHANNELS // 64) * 64
    block = block // (CHANNELS // 64)
    output = block % (OUTPUTS // 64) * 64
    part = block // (OUTPUTS // 64)
    begin = part * each
    end = gl.minimum(begin + each, steps)
    lines: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    gs = gl.allocate_shared_memory(grads.dtype, [STAGES] + grads.block_type.shape, grads.layout)  # noqa: RUF005
    xs = gl.allocate_shared_memory(maps.dtype, [STAGES * (ROWS + 2), WIDE, 64], lines)
    arrivals = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(arrivals.index(s), count=1)
    fence_async_shared()
    for s in gl.static_range(STAGES - 1):
        _fetch_column(
            grads, maps, edges, gs, xs, arrivals, begin + s, s, across, output, channel, HIGH, ROWS, begin + s < end
        )

    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    top = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, accumulator))
    middle = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, accumulator))
    bottom = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, accumulator))
    for k in range(end - begin):
        slot = k % STAGES
        mbarrier.wait(arrivals.index(slot), (k // STAGES) & 1)
        left = gs.index(slot).reshape([ROWS * WIDE, 64]).permute([1, 0])
        top = warpgroup_mma(left, _rows(xs, slot, 0, ROWS, WIDE, lines), top, is_async=True)
        middle = warpgroup_mma(left, _rows(xs, slot, 1, ROWS, WIDE, lines), middle, is_async=True)
        bottom = warpgroup_mma(left, _rows(xs, slot, 2, ROWS, WIDE, lines), bottom, is_async=True)
        found = warpgroup_mma_wait(3, deps=[top, middle, bottom])  # those of the step before are done: its slot is free
        top, middle, bottom = (warpgroup_mma_init(found[0]), warpgroup_mma_init(found[1]), warpgroup_mma_init(found[2]))
        ahead = begin + k + STAGES - 1
        _fetch_column(
            grads, maps, edges, gs, xs, arrivals, ahead, (k + STAGES - 1) % STAGES, across, output, channel, HIGH, ROWS,
            ahead < end,
        )  # fmt: skip
    sums = warpgroup_mma_wait(0, deps=[top, middle, bottom])
    for s in gl.static_range(STAGES):
        mbarrier.invalidate(arrivals.index(s))
    row = gl.arange(0, 64, gl.SliceLayout(1, accumulator)) + part * OUTPUTS + output
    place = (row * 9 * CHANNELS)[:, None] + gl.arange(0, 64, gl.SliceLayout(0, accumulator))[None, :]
    for down in gl.static_range(3):
        gl.store(done + (down * 3 + across) * CHANNELS + channel + place, sums[down])


@gluon.jit
def _fetch_column(
    grads, maps, edges, gs, xs, arrivals, step, slot, across, output, channel, HIGH: gl.constexpr, ROWS: gl.constexpr,
    wanted,
):  # fmt: skip
    """Starts loading the gradients of one step's pixels, and the input maps around them."""
    arrival = arrivals.index(slot)
    nbytes: gl.constexpr = grads.block_type.nbytes + maps.block_type.nbytes + edges.block_type.nbytes
    mbarrier.expect(arrival, nbytes, pred=wanted)
    image = step // (HIGH // ROWS)
    row = step % (HIGH // ROWS) * ROWS
    tma.async_copy_global_to_shared(grads, [image, row, 0, output], arrival, gs.index(slot), pred=wanted)
    fetch_rows(maps, edges, xs, arrival, slot, step, across - 1, channel, HIGH, ROWS, wanted)


@gluon.jit
def _rows(xs, slot, down, ROWS: gl.constexpr, WIDE: gl.constexpr, lines: gl.constexpr):
    """A step's pixels, so many rows below the first of its slot."""
    return xs.index(slot * (ROWS + 2) + down)._reinterpret(xs.dtype, [ROWS * WIDE, 64], lines)
