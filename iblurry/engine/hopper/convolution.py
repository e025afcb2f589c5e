"""A convolution with bias, ReLU and sum, or its gradient with respect to the input maps, by one kernel."""

# Arguments of a kernel are annotated for its compiler, not for mypy.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._layouts import NVMMASharedLayout
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from iblurry.engine.hopper.launch import launch


class Tile(NamedTuple):
    """What one block of threads computes: so many images, rows of them, and output channels."""

    images: int
    rows: int
    outputs: int
    inputs: int  # channels multiplied at a time
    stages: int  # of these on their way
    warps: int


CHOICES = ((128, 128, 3, 8), (128, 64, 3, 8), (64, 64, 6, 4))  # pixels, outputs, stages, warps
PROCESSORS = 132  # multiprocessors of an H200
ENOUGH = 120  # blocks to be busy with there


def choose_tile(
    count: int, channels: int, outputs: int, high: int, wide: int, *, times: int = 1, models: int = 1
) -> Tile | None:
    """The largest tile that gives every multiprocessor work, for `count` output maps of this size; None if none fits.

    `times`: how often each tile is computed, as the gradient of a strided convolution is (stride**2 times). `models`:
    how many stacked models share the maps; no tile has maps of two.
    """
    inputs = 64 if channels % 64 == 0 else 32
    if channels % inputs:
        return None
    found = None
    for pixels, across, stages, warps in CHOICES:
        grouped = group_rows(pixels, high, wide)
        if grouped is None or outputs % across:
            continue
        images, rows = grouped
        if models > 1 and count // models % images:
            continue
        found = Tile(images, rows, across, inputs, stages, warps)
        if -(-count // images) * (high // rows) * (outputs // across) * times >= ENOUGH:
            break
    return found


def group_rows(pixels: int, high: int, wide: int) -> tuple[int, int] | None:
    """A tile of so many pixels as (images, rows of each); None where maps of this size do not divide into it."""
    rows = min(high, pixels // wide)
    if not rows or high % rows or pixels % (rows * wide):
        return None
    return pixels // (rows * wide), rows


def convolve(
    maps: Tensor,
    weight: Tensor,
    tile: Tile,
    *,
    stride: int = 1,
    bias: Tensor | None = None,
    plus: Tensor | None = None,
    backwards: bool = False,
    models: int = 1,
) -> Tensor:
    """relu(weight * maps + bias) + plus, or weight * maps without a bias; padded by half the kernel's side.

    `backwards`: the gradient with respect to the input maps; `maps` is then the gradient of the output maps. `models`:
    how many models are stacked, one behind the other in `maps` and in `weight`. Everything is bfloat16 and channels
    last.
    """
    count, channels, high, wide = maps.shape
    side, outputs = weight.shape[2], weight.shape[1] if backwards else len(weight) // models
    step, spread = (1, stride) if backwards else (stride, 1)
    up, across = high // step, wide // step
    box = [tile.inputs, tile.outputs] if backwards else [tile.outputs, tile.inputs]
    done = maps.new_empty(count, up * spread, across * spread, outputs).permute(0, 3, 1, 2)
    blocks = -(-count // tile.images) * (up // tile.rows) * (outputs // tile.outputs) * spread**2
    launch(
        _convolve,
        blocks,
        describe_maps(maps, step, tile.images, tile.rows, tile.inputs),
        describe_weights(weight, box),
        done if bias is None else bias,
        done if plus is None else plus,
        done,
        count,
        count // models,
        CHANNELS=channels,
        OUTPUTS=outputs,
        HIGH=up,
        WIDE=across,
        SIDE=side,
        STRIDE=step,
        SPREAD=spread,
        IMAGES=tile.images,
        ROWS=tile.rows,
        BN=tile.outputs,
        BK=tile.inputs,
        STAGES=tile.stages,
        ENDS=bias is not None,
        ADDS=plus is not None,
        BACK=backwards,
        num_warps=tile.warps,
    )
    return done


def describe_maps(maps: Tensor, stride: int, images: int, rows: int, channels: int) -> TensorDescriptor:
    """Describes boxes of the maps to the copy engine: images, rows (with the stride), all columns, channels."""
    count, depth, high, wide = maps.shape
    row, across = wide * depth, wide // stride
    if stride == 1:
        shape, strides, box = [count, high, wide, depth], [high * row, row, depth, 1], [images, rows, across, channels]
    else:  # an image as four: by rows and columns with even and with odd numbers
        shape, strides = [count, high // 2, 2, across, 2 * depth], [high * row, 2 * row, row, 2 * depth, 1]
        box = [images, rows, 1, across, channels]
    return TensorDescriptor(maps, shape, strides, box, _swizzled(box))


def describe_stack(maps: Tensor, models: int, images: int, rows: int, channels: int) -> TensorDescriptor:
    """Describes boxes of the maps of stacked models: a model, its images, rows, all columns, channels.

    Behind the last image of a model there are zeros.
    """
    count, depth, high, wide = maps.shape
    image = high * wide * depth
    shape, strides = (
        [models, count // models, high, wide, depth],
        [count // models * image, image, wide * depth, depth, 1],
    )
    box = [1, images, rows, wide, channels]
    return TensorDescriptor(maps, shape, strides, box, _swizzled(box))


def describe_weights(weight: Tensor, box: list[int]) -> TensorDescriptor:
    """Describes boxes of the weights to the copy engine: outputs, and channels of one tap."""
    depth = weight.numel() // len(weight)
    return TensorDescriptor(weight, [len(weight), depth], [depth, 1], box, _swizzled(box))


def _swizzled(box: list[int]) -> NVMMASharedLayout:
    return NVMMASharedLayout(min(128, 2 * box[-1]), 16, rank=len(box))


@gluon.jit
def shifted(
    maps, there, arrival, image, row, channel, down, across, CHANNELS: gl.constexpr, STRIDE: gl.constexpr, wanted,
):  # fmt: skip
    """Sends for a box of maps as `describe_maps`, so many pixels further down and across."""
    if STRIDE == 1:
        place = [image, row + down, across, channel]
    else:
        odd_row = down & 1
        odd_column = across & 1
        place = [
            image,
            row + (down - odd_row) // 2,
            odd_row,
            (across - odd_column) // 2,
            odd_column * CHANNELS + channel,
        ]
    tma.async_copy_global_to_shared(maps, place, arrival, there, pred=wanted)


@gluon.jit
def _fetch(
    images, kernel, xs, ws, arrivals, k, slot, image, model, row, output, odd_high, odd_wide, CHANNELS: gl.constexpr,
    OUTPUTS: gl.constexpr, SIDE: gl.constexpr, STRIDE: gl.constexpr, SPREAD: gl.constexpr, BK: gl.constexpr,
    BACK: gl.constexpr, wanted,
):  # fmt: skip
    """Sends for one slice of the maps, shifted as its tap says, and of the weights; outside an image there are 0s."""
    SLICES: gl.constexpr = CHANNELS // BK
    tap = k // SLICES
    channel = (k % SLICES) * BK
    if SPREAD == 1:
        down = tap // SIDE - SIDE // 2
        across = tap % SIDE - SIDE // 2
    else:  # of three taps, pixels with an odd number were met by the outer ones, the others by that in the middle
        second_high = tap // (1 + odd_wide)
        second_wide = tap % (1 + odd_wide)
        down = odd_high * (1 - second_high)
        across = odd_wide * (1 - second_wide)
        if SIDE == 3:
            tap = (1 - odd_high + 2 * second_high) * 3 + 1 - odd_wide + 2 * second_wide
    arrival = arrivals.index(slot)
    mbarrier.expect(arrival, images.block_type.nbytes + kernel.block_type.nbytes, pred=wanted)
    shifted(images, xs.index(slot), arrival, image, row, channel, down, across, CHANNELS, STRIDE, wanted)
    if not BACK:
        weights_at = [model * OUTPUTS + output, tap * CHANNELS + channel]
    elif SPREAD == 1:  # the weights as they lie, taps in reverse; what they put out is put in here
        weights_at = [model * CHANNELS + channel, (SIDE * SIDE - 1 - tap) * OUTPUTS + output]
    else:
        weights_at = [model * CHANNELS + channel, tap * OUTPUTS + output]
    tma.async_copy_global_to_shared(kernel, weights_at, arrival, ws.index(slot), pred=wanted)


@gluon.jit(do_not_specialize=["count", "each"])  # not compiled for each size of a batch again
def _convolve(
    images, kernel, bias, plus, done, count, each, CHANNELS: gl.constexpr, OUTPUTS: gl.constexpr,
    HIGH: gl.constexpr, WIDE: gl.constexpr, SIDE: gl.constexpr, STRIDE: gl.constexpr, SPREAD: gl.constexpr,
    IMAGES: gl.constexpr, ROWS: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr,
    ENDS: gl.constexpr, ADDS: gl.constexpr, BACK: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """A product of (pixels, taps * channels) and (taps * channels, outputs), whose left side is never written out.

    SPREAD 2: a block computes the pixels whose rows are odd or not, and columns; each kind has taps of its own.
    """
    BM: gl.constexpr = IMAGES * ROWS * WIDE
    block = gl.program_id(0)
    output = (block % (OUTPUTS // BN)) * BN
    block = block // (OUTPUTS // BN)
    row = (block % (HIGH // ROWS)) * ROWS
    block = block // (HIGH // ROWS)
    if SPREAD == 1:
        odd_high = 0
        odd_wide = 0
        taps = SIDE * SIDE
        image = block * IMAGES
    else:
        groups = (count + IMAGES - 1) // IMAGES
        odd_high = 1 - block // (2 * groups)  # those with most taps come first
        odd_wide = 1 - block // groups % 2
        taps = (1 + odd_high) * (1 + odd_wide) if SIDE == 3 else (1 - odd_high) * (1 - odd_wide)
        image = block % groups * IMAGES
    model = image // each  # of the stacked ones, with so many images each
    steps = taps * (CHANNELS // BK)
    xs = gl.allocate_shared_memory(images.dtype, [STAGES] + images.block_type.shape, images.layout)  # noqa: RUF005
    ws = gl.allocate_shared_memory(kernel.dtype, [STAGES] + kernel.block_type.shape, kernel.layout)  # noqa: RUF005
    arrivals = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(arrivals.index(s), count=1)
    fence_async_shared()
    for s in gl.static_range(STAGES - 1):
        _fetch(
            images, kernel, xs, ws, arrivals, s, s, image, model, row, output, odd_high, odd_wide, CHANNELS, OUTPUTS,
            SIDE, STRIDE, SPREAD, BK, BACK, s < steps,
        )  # fmt: skip

    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, BN, 16])
    total = warpgroup_mma_init(gl.zeros([BM, BN], gl.float32, accumulator))
    for k in range(steps):
        slot = k % STAGES
        mbarrier.wait(arrivals.index(slot), (k // STAGES) & 1)
        pixels = xs.index(slot).reshape([BM, BK])
        if BACK:
            total = warpgroup_mma(pixels, ws.index(slot), total, is_async=True)
        else:
            total = warpgroup_mma(pixels, ws.index(slot).permute([1, 0]), total, is_async=True)
        total = warpgroup_mma_init(warpgroup_mma_wait(1, deps=[total]))  # the one before is done: its slot is free
        ahead = k + STAGES - 1
        _fetch(
            images, kernel, xs, ws, arrivals, ahead, ahead % STAGES, image, model, row, output, odd_high, odd_wide,
            CHANNELS, OUTPUTS, SIDE, STRIDE, SPREAD, BK, BACK, ahead < steps,
        )  # fmt: skip
    sums = warpgroup_mma_wait(0, deps=[total])
    for s in gl.static_range(STAGES):
        mbarrier.invalidate(arrivals.index(s))

    if ENDS:
        bias_at = bias + output + gl.arange(0, BN, gl.SliceLayout(0, accumulator))
        sums = gl.maximum(sums + gl.load(bias_at).to(gl.float32)[None, :], 0.0)
    ACROSS: gl.constexpr = BN // 8 if BN < 256 else 32
    whole_rows: gl.constexpr = gl.BlockedLayout([1, 8], [32 // ACROSS, ACROSS], [num_warps, 1], [1, 0])
    result = gl.convert_layout(sums.to(gl.bfloat16), whole_rows)
    pixel = (image * HIGH + row) * WIDE + gl.arange(0, BM, gl.SliceLayout(1, whole_rows))
    column = output + gl.arange(0, BN, gl.SliceLayout(0, whole_rows))
    is_there = (pixel < count * HIGH * WIDE)[:, None]
    if SPREAD == 2:
        pixel = (2 * (pixel // WIDE) + odd_high) * (2 * WIDE) + 2 * (pixel % WIDE) + odd_wide
    place = pixel.to(gl.int64)[:, None] * OUTPUTS + column[None, :]
    if ADDS:
        result = (result.to(gl.float32) + gl.load(plus + place, mask=is_there).to(gl.float32)).to(gl.bfloat16)
    gl.store(done + place, result, mask=is_there)
