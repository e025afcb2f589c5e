"""3x3 convolutions of many maps, 64 channels to 64 and 128 to 128, by one kernel each; in training those of 64 only.

A tile of pixels is loaded, multiplied and stored; dedicated warps load its pixels once for each column of three taps.
The three taps of a column read the same pixels, one row further down each time: a slot of shared memory holds the rows
of a tile and one more at both ends. Pixels are the right operand of a product whose left are 64 outputs: so 256 of them
are read at a time, which is what makes shared memory fast enough for the tensor cores.
"""

# Arguments of a kernel are annotated for its compiler, not for mypy.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from typing import Any

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

from iblurry.engine.hopper.convolution import PROCESSORS, describe_maps, describe_weights
from iblurry.engine.hopper.launch import launch

PIXELS = 256  # of a tile: whole rows of one image
SLICE = 64  # channels multiplied at a time, and outputs of four warps
MANY = 3 * PROCESSORS  # tiles: the last round is one of four at least


def count_tiles(count: int, high: int, wide: int) -> int:
    """Tiles of 256 pixels in `count` maps."""
    return count * high * wide // PIXELS


def fits(channels: int, outputs: int, high: int, wide: int, side: int, stride: int) -> bool:
    """Whether there is a kernel for a convolution of this size: 64 channels to 64, or 128 to 128."""
    widths = {64: (16, 32, 64), 128: (16, 32)}
    if (side, stride) != (3, 1) or channels != outputs or wide not in widths.get(channels, ()):
        return False
    return high % (PIXELS // wide) == 0


def is_worthwhile(count: int, high: int, wide: int) -> bool:
    """Whether these are enough maps to keep the device busy: one block of the kernel per multiprocessor."""
    return count_tiles(count, high, wide) > MANY


def convolve(maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None = None) -> Tensor:
    """relu(weight * maps + bias) + plus, padded by one pixel; everything is bfloat16 and channels last."""
    if maps.shape[1] == 64:
        return _run(_convolve_64, maps, weight, bias, plus, ENDS=True, BACK=False)
    return _run(_convolve_128, maps, weight, bias, plus)


def convolve_64(maps: Tensor, weight: Tensor, plus: Tensor | None, *, backwards: bool, models: int) -> Tensor:
    """weight * maps + plus, or the gradient with respect to the input maps; arguments as of `convolution.convolve`."""
    return _run(_convolve_64, maps, weight, None, plus, models, ENDS=False, BACK=backwards)


def _share(tiles: int, models: int, device: torch.device) -> int:
    """Blocks of a model with so many tiles; one per multiprocessor."""
    is_meta = device.type == "meta"
    blocks = PROCESSORS if is_meta else torch.cuda.get_device_properties(device).multi_processor_count
    return min(tiles, max(1, blocks // models))


def _run(
    kernel: Any,
    maps: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    plus: Tensor | None,
    models: int = 1,
    **constants: bool,
) -> Tensor:
    """Weights are loaded for all outputs at a time; a block has tiles of one model."""
    count, channels, high, wide = maps.shape
    tiles = count_tiles(count // models, high, wide)
    done = maps.new_empty(count, high, wide, channels).permute(0, 3, 1, 2)
    beside = _share(tiles, models, maps.device)
    launch(
        kernel,
        models * beside,
        describe_maps(maps, 1, 1, PIXELS // wide, SLICE),
        describe_maps(maps, 1, 1, 2, SLICE),
        describe_weights(weight, [channels, SLICE]),
        maps,
        done if bias is None else bias,
        done if plus is None else plus,
        done,
        tiles,
        beside,
        HIGH=high,
        WIDE=wide,
        ROWS=PIXELS // wide,
        ADDS=plus is not None,
        num_warps=4,
        **constants,
    )
    return done


# The kernel of 64 channels: its weights stay in shared memory.


@gluon.jit(do_not_specialize=["tiles", "beside"])
def _convolve_64(
    images, edges, kernel, maps, bias, plus, done, tiles, beside, HIGH: gl.constexpr, WIDE: gl.constexpr,
    ROWS: gl.constexpr, ADDS: gl.constexpr, ENDS: gl.constexpr, BACK: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """A product of (outputs, taps * channels) and (taps * channels, pixels), tile after tile by the same block.

    Two groups of four warps alternate: while one stores its tile, the other uses the tensor cores. `beside` blocks
    share the tiles of a model. BACK: the weights as they lie, taps in reverse.
    """
    xs = gl.allocate_shared_memory(images.dtype, [3 * (ROWS + 2), WIDE, 64], kernel.layout)
    ws = gl.allocate_shared_memory(kernel.dtype, [9, 64, 64], kernel.layout)
    arrivals = gl.allocate_shared_memory(gl.int64, [7, 1], mbarrier.MBarrierLayout())  # by group and slot; the weights
    free = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())  # by slot
    for s in gl.static_range(7):
        mbarrier.init(arrivals.index(s), count=1)
    for s in gl.static_range(3):
        mbarrier.init(free.index(s), count=1)
    fence_async_shared()
    shared = (xs, ws, arrivals, free)
    given = (bias, plus, done, tiles, beside)
    gl.warp_specialize(
        [
            (_compute_64, (shared, given, gl.constexpr(0), WIDE, ROWS, ADDS, ENDS, BACK)),
            (_compute_64, (shared, given, gl.constexpr(1), WIDE, ROWS, ADDS, ENDS, BACK)),
            (_load_64, (shared, images, edges, kernel, maps, plus, tiles, beside, HIGH, WIDE, ROWS, ADDS)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _tiles_of_block(tiles, beside):
    """Returns a block's model, the first of its tiles, and the end of the model's; a block has each `beside`-th."""
    model = gl.program_id(0) // beside
    part = gl.program_id(0) % beside
    return model, model * tiles + part, (model + 1) * tiles


@gluon.jit
def _load_64(
    shared, images, edges, kernel, maps, plus, tiles, beside, HIGH: gl.constexpr, WIDE: gl.constexpr,
    ROWS: gl.constexpr, ADDS: gl.constexpr,
):  # fmt: skip
    """Loads the weights, then one tile after the other: a slot for each column of taps."""
    xs, ws, arrivals, free = shared
    model, first, end = _tiles_of_block(tiles, beside)
    mbarrier.expect(arrivals.index(6), 9 * kernel.block_type.nbytes)
    for tap in gl.static_range(9):
        tma.async_copy_global_to_shared(kernel, [model * 64, tap * 64], arrivals.index(6), ws.index(tap))
    VALUES: gl.constexpr = ROWS * WIDE * 64
    turn = 0
    for tile in range(first, end, beside):
        for s in gl.static_range(3):
            mbarrier.wait(free.index(s), turn ^ 1)
            arrival = arrivals.index(turn * 3 + s)
            mbarrier.expect(arrival, images.block_type.nbytes + edges.block_type.nbytes)
            fetch_rows(images, edges, xs, arrival, s, tile, s - 1, 0, HIGH, ROWS)
        after = gl.minimum(tile + beside, end - 1)
        _prefetch_l2(maps, after, VALUES)
        if ADDS:
            _prefetch_l2(plus, after, VALUES)
        turn = turn ^ 1


@gluon.jit
def _compute_64(
    shared, given, GROUP: gl.constexpr, WIDE: gl.constexpr, ROWS: gl.constexpr, ADDS: gl.constexpr,
    ENDS: gl.constexpr, BACK: gl.constexpr,
):  # fmt: skip
    """Computes every second tile of the block."""
    xs, ws, arrivals, free = shared
    bias, plus, done, tiles, beside = given
    _, first, end = _tiles_of_block(tiles, beside)
    BM: gl.constexpr = ROWS * WIDE
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    added = _load_bias(bias, BM) if ENDS else 0.0
    place = _output_offsets(BM, 64)
    turn = 0
    mbarrier.wait(arrivals.index(6), 0)
    for tile in range(first + GROUP * beside, end, 2 * beside):
        total = warpgroup_mma_init(gl.zeros([64, BM], gl.float32, accumulator))
        start = _tile_offset(tile, BM * 64)
        more = gl.load(plus + start + place) if ADDS else bias
        for s in range(3):
            mbarrier.wait(arrivals.index(GROUP * 3 + s), turn)
            for down in gl.static_range(3):
                tap = 8 - down * 3 - s if BACK else down * 3 + s
                total = _multiply(xs, ws.index(tap), total, s, down, s + down > 0, ROWS, WIDE, BACK)
            total = warpgroup_mma_init(warpgroup_mma_wait(3, deps=[total]))
            _release(free, s - 1, s > 0)
        sums = warpgroup_mma_wait(0, deps=[total])
        _release(free, 2, True)
        if ENDS:
            sums = gl.maximum(sums + added, 0.0)
        _store_outputs(sums, more, done + start, place, ADDS)
        turn = turn ^ 1


# The kernel of 128 channels.


@gluon.jit(do_not_specialize=["tiles", "beside"])
def _convolve_128(
    images, edges, kernel, maps, bias, plus, done, tiles, beside, HIGH: gl.constexpr, WIDE: gl.constexpr,
    ROWS: gl.constexpr, ADDS: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """A product of (outputs, taps * channels) and (taps * channels, pixels), tile after tile by the same block.

    Two groups of four warps compute half of the outputs each. A tile is six stages: three columns of taps, each in two
    halves of the channels. There is room for the pixels of three stages and for the weights of two, tap by tap.
    """
    xs = gl.allocate_shared_memory(images.dtype, [3 * (ROWS + 2), WIDE, 64], kernel.layout)
    ws = gl.allocate_shared_memory(kernel.dtype, [2 * 3 * 2, 64, 64], kernel.layout)
    arrivals = gl.allocate_shared_memory(gl.int64, [9, 1], mbarrier.MBarrierLayout())  # three of pixels, six of weights
    free = gl.allocate_shared_memory(gl.int64, [6, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(9):
        mbarrier.init(arrivals.index(s), count=1)
    for s in gl.static_range(6):
        mbarrier.init(free.index(s), count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                _compute_128,
                (xs, ws, arrivals, free, bias, plus, done, tiles, beside, gl.constexpr(0), WIDE, ROWS, ADDS),
            ),
            (
                _compute_128,
                (xs, ws, arrivals, free, bias, plus, done, tiles, beside, gl.constexpr(1), WIDE, ROWS, ADDS),
            ),
            (
                _load_128,
                (images, edges, kernel, maps, plus, xs, ws, arrivals, free, tiles, beside, HIGH, WIDE, ROWS, ADDS),
            ),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _load_128(
    images, edges, kernel, maps, plus, xs, ws, arrivals, free, tiles, beside, HIGH: gl.constexpr, WIDE: gl.constexpr,
    ROWS: gl.constexpr, ADDS: gl.constexpr,
):  # fmt: skip
    """Loads one stage after the other.

    Pixels overwrite those of three stages before. That those are no longer read was waited for already: the last
    weights of the previous stage replaced theirs.
    """
    VALUES: gl.constexpr = ROWS * WIDE * 128
    stage = 0
    for tile in range(gl.program_id(0), tiles, beside):
        for k in range(6):
            slot = stage % 3
            mbarrier.expect(arrivals.index(slot), images.block_type.nbytes + edges.block_type.nbytes)
            fetch_rows(images, edges, xs, arrivals.index(slot), slot, tile, k // 2 - 1, k % 2 * 64, HIGH, ROWS)
            for down in gl.static_range(3):
                at = k % 2 * 3 + down
                mbarrier.wait(free.index(at), stage // 2 & 1 ^ 1)
                mbarrier.expect(arrivals.index(3 + at), kernel.block_type.nbytes)
                tma.async_copy_global_to_shared(
                    kernel,
                    [0, (down * 3 + k // 2) * 128 + k % 2 * 64],
                    arrivals.index(3 + at),
                    ws.index(at * 2)._reinterpret(kernel.dtype, kernel.block_type.shape, kernel.layout),
                )
            stage += 1
        after = gl.minimum(tile + beside, tiles - 1)
        _prefetch_l2(maps, after, VALUES)
        if ADDS:
            _prefetch_l2(plus, after, VALUES)


@gluon.jit
def _compute_128(
    xs, ws, arrivals, free, bias, plus, done, tiles, beside, GROUP: gl.constexpr, WIDE: gl.constexpr,
    ROWS: gl.constexpr, ADDS: gl.constexpr,
):  # fmt: skip
    """Computes half of the outputs; waits for one tap's products while the next tap's run."""
    BM: gl.constexpr = ROWS * WIDE
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    added = _load_bias(bias + GROUP * 64, BM)
    place = _output_offsets(BM, 128)
    stage = 0
    for tile in range(gl.program_id(0), tiles, beside):
        total = warpgroup_mma_init(gl.zeros([64, BM], gl.float32, accumulator))
        start = _tile_offset(tile, BM * 128) + GROUP * 64
        more = gl.load(plus + start + place) if ADDS else bias
        for k in range(6):
            mbarrier.wait(arrivals.index(stage % 3), stage // 3 & 1)
            for down in gl.static_range(3):
                at = k % 2 * 3 + down
                mbarrier.wait(arrivals.index(3 + at), stage // 2 & 1)
                total = _multiply(xs, ws.index(at * 2 + GROUP), total, stage % 3, down, k + down > 0, ROWS, WIDE, False)
                total = warpgroup_mma_init(warpgroup_mma_wait(1, deps=[total]))
                if down > 0:
                    _release(free, at - 1, True)
                else:
                    _release(free, 5 - k % 2 * 3, k > 0)
            stage += 1
        sums = warpgroup_mma_wait(0, deps=[total])
        _release(free, 5, True)
        _store_outputs(gl.maximum(sums + added, 0.0), more, done + start, place, ADDS)


# What both share.


@gluon.jit
def fetch_rows(
    images, edges, xs, arrival, slot, tile, across, channel, HIGH: gl.constexpr, ROWS: gl.constexpr, wanted=True,
):  # fmt: skip
    """Starts loading a tile's rows and the one above and below, shifted across; zeros outside an image."""
    image = tile // (HIGH // ROWS)
    row = tile % (HIGH // ROWS) * ROWS - 1
    most = xs.index(slot * (ROWS + 2))._reinterpret(images.dtype, images.block_type.shape, images.layout)
    rest = xs.index(slot * (ROWS + 2) + ROWS)._reinterpret(edges.dtype, edges.block_type.shape, edges.layout)
    tma.async_copy_global_to_shared(images, [image, row, across, channel], arrival, most, pred=wanted)
    tma.async_copy_global_to_shared(edges, [image, row + ROWS, across, channel], arrival, rest, pred=wanted)


@gluon.jit
def _tile_offset(tile, VALUES: gl.constexpr):
    """The offset of a tile's first value."""
    return tile.to(gl.int64) * VALUES


@gluon.jit
def _prefetch_l2(maps, tile, VALUES: gl.constexpr):
    """Starts loading a tile's values, which are contiguous, into the L2 cache; one thread asks for all."""
    gl.inline_asm_elementwise(
        """{
            .reg .pred first; .reg .b32 me;
            mov.u32 me, %tid.x;
            and.b32 me, me, 31;
            setp.eq.u32 first, me, 0;
            @first cp.async.bulk.prefetch.L2.global [$1], $2;
            mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [maps + _tile_offset(tile, VALUES), VALUES * 2],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _multiply(xs, weights, total, slot, down, keep, ROWS: gl.constexpr, WIDE: gl.constexpr, BACK: gl.constexpr):
    """Adds the product of one tap's weights and a slot's pixels to the total, or starts the total with it."""
    pixels = xs.index(slot * (ROWS + 2) + down)._reinterpret(xs.dtype, [ROWS * WIDE, 64], weights.layout)
    left = weights.permute([1, 0]) if BACK else weights
    return warpgroup_mma(left, pixels.permute([1, 0]), total, use_acc=keep, is_async=True)


@gluon.jit
def _release(free, slot, wanted):
    """Marks a slot as free once all four warps have finished their products of it."""
    gl.thread_barrier()
    mbarrier.arrive(free.index(slot), pred=wanted)


@gluon.jit
def _output_offsets(BM: gl.constexpr, OUTPUTS: gl.constexpr):
    """Offsets of 64 outputs of a tile's pixels, relative to the first."""
    whole_rows: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    pixel = gl.arange(0, BM, gl.SliceLayout(1, whole_rows))
    return pixel[:, None] * OUTPUTS + gl.arange(0, 64, gl.SliceLayout(0, whole_rows))[None, :]


@gluon.jit
def _load_bias(bias, BM: gl.constexpr):
    """Loads the bias of 64 outputs, as a column."""
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    return gl.load(bias + gl.arange(0, 64, gl.SliceLayout(1, accumulator))).to(gl.float32)[:, None]


@gluon.jit
def _store_outputs(sums, more, done, place, ADDS: gl.constexpr):
    """Stores 64 outputs of a tile's pixels, with the added maps."""
    result = gl.convert_layout(sums.to(gl.bfloat16).permute([1, 0]), place.type.layout)
    if ADDS:
        result = (result.to(gl.float32) + more.to(gl.float32)).to(gl.bfloat16)
    gl.store(done + place, result)
