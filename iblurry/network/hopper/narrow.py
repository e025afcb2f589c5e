"""Answers of a narrow convolution by one kernel of a Hopper GPU: 3x3, 64 channels to 64, its weights kept at hand."""

# What a kernel's arguments are is the compiler's business (it wants its own annotations, and no others).
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

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

from iblurry.network.hopper.maps import described, weights_described

CHANNELS = 64  # before and behind it
PIXELS = 256  # of a tile: whole rows of one image
WARPS = 8


def fits(channels: int, outputs: int, high: int, wide: int, side: int, stride: int) -> bool:
    """Whether a convolution of maps of this size is one of these."""
    narrow = (channels, outputs, side, stride) == (CHANNELS, CHANNELS, 3, 1)
    return narrow and wide in (16, 32, 64) and high % (PIXELS // wide) == 0


def tiles(count: int, high: int, wide: int) -> int:
    """How many there are of so many maps."""
    return count * high * wide // PIXELS


def convolve(maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None = None) -> Tensor:
    """relu(weight * maps + bias) + plus, padded by one pixel; all is bfloat16 and lies channels last."""
    count, _, high, wide = maps.shape
    rows, there = PIXELS // wide, tiles(count, high, wide)
    done = torch.empty_like(maps)
    _convolve[(min(there, torch.cuda.get_device_properties(maps.device).multi_processor_count),)](
        described(maps, 1, 1, rows, CHANNELS),
        described(maps, 1, 1, 2, CHANNELS),
        weights_described(weight, [CHANNELS, CHANNELS]),
        maps,
        bias,
        done if plus is None else plus,
        done,
        there,
        HIGH=high,
        WIDE=wide,
        ROWS=rows,
        ADDS=plus is not None,
        num_warps=WARPS,
    )
    return done


@gluon.jit
def _fetch(images, edges, xs, arrivals, tile, SLOT: gl.constexpr, HIGH: gl.constexpr, ROWS: gl.constexpr, wanted):
    """Sends for a tile's rows and those around it, shifted across as the slot says; outside an image there are 0s."""
    image = tile // (HIGH // ROWS)
    row = tile % (HIGH // ROWS) * ROWS - 1
    arrival = arrivals.index(SLOT)
    most = xs.index(SLOT * (ROWS + 2))._reinterpret(images.dtype, images.block_type.shape, images.layout)
    rest = xs.index(SLOT * (ROWS + 2) + ROWS)._reinterpret(edges.dtype, edges.block_type.shape, edges.layout)
    mbarrier.expect(arrival, images.block_type.nbytes + edges.block_type.nbytes, pred=wanted)
    tma.async_copy_global_to_shared(images, [image, row, SLOT - 1, 0], arrival, most, pred=wanted)
    tma.async_copy_global_to_shared(edges, [image, row + ROWS, SLOT - 1, 0], arrival, rest, pred=wanted)


@gluon.jit
def _announce(maps, tile, BM: gl.constexpr):
    """Has a tile's own values, which lie together, brought as far as the second cache: one thread says so for all."""
    gl.inline_asm_elementwise(
        """{
            .reg .pred first; .reg .b32 me;
            mov.u32 me, %tid.x;
            setp.eq.u32 first, me, 0;
            @first cp.async.bulk.prefetch.L2.global [$1], $2;
            mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [maps + tile.to(gl.int64) * (BM * 64), BM * 64 * 2],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _multiply(xs, ws, total, SLOT: gl.constexpr, ROWS: gl.constexpr, WIDE: gl.constexpr):
    """Adds the three taps of one column: their pixels are the same ones, seen from one row further down each time."""
    for down in gl.static_range(3):
        pixels = xs.index(SLOT * (ROWS + 2) + down)._reinterpret(xs.dtype, [ROWS * WIDE, 64], ws.layout)
        total = warpgroup_mma(
            ws.index(down * 3 + SLOT), pixels.permute([1, 0]), total, use_acc=SLOT + down > 0, is_async=True
        )
    return total


@gluon.jit
def _finish(sums, bias, plus, done, tile, BM: gl.constexpr, ADDS: gl.constexpr, num_warps: gl.constexpr):
    """The bias, the ReLU and the sum behind them, for a tile's whole rows."""
    whole_rows: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [num_warps, 1], [1, 0])
    pixel = gl.arange(0, BM, gl.SliceLayout(1, whole_rows))
    place = pixel[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, whole_rows))[None, :]
    start = tile.to(gl.int64) * (BM * 64)
    if ADDS:
        more = gl.load(plus + start + place)
    ended = gl.maximum(sums + bias, 0.0).to(gl.bfloat16)
    result = gl.convert_layout(ended.permute([1, 0]), whole_rows)
    if ADDS:
        result = (result.to(gl.float32) + more.to(gl.float32)).to(gl.bfloat16)
    gl.store(done + start + place, result)


@gluon.jit
def _convolve(
    images, edges, kernel, maps, bias, plus, done, tiles, HIGH: gl.constexpr, WIDE: gl.constexpr, ROWS: gl.constexpr,
    ADDS: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """A product of (outputs, taps * channels) and (taps * channels, pixels), tile after tile by the same block.

    A slot of shared memory for each column of taps, sent for again once all threads' products of it are done: two slots
    before it is needed. Pixels are the right side because a product reads 128 of them for its 64 outputs: with 64 on
    both sides, the tensor cores would need all that shared memory can give.
    """
    BM: gl.constexpr = ROWS * WIDE
    first = gl.program_id(0)
    step = gl.num_programs(0)
    xs = gl.allocate_shared_memory(images.dtype, [3 * (ROWS + 2), WIDE, 64], kernel.layout)
    ws = gl.allocate_shared_memory(kernel.dtype, [9, 64, 64], kernel.layout)
    arrivals = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(4):
        mbarrier.init(arrivals.index(s), count=1)
    fence_async_shared()
    mbarrier.expect(arrivals.index(3), 9 * kernel.block_type.nbytes)
    for tap in gl.static_range(9):
        tma.async_copy_global_to_shared(kernel, [0, tap * 64], arrivals.index(3), ws.index(tap))
    for s in gl.static_range(2):
        _fetch(images, edges, xs, arrivals, first, s, HIGH, ROWS, True)

    mine: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, num_warps // 4], [16, BM // (num_warps // 4), 16])
    added = gl.load(bias + gl.arange(0, 64, gl.SliceLayout(1, mine))).to(gl.float32)[:, None]
    sums = gl.zeros([64, BM], gl.float32, mine)
    mbarrier.wait(arrivals.index(3), 0)
    turn = 0
    for tile in range(first, tiles, step):
        after = tile + step
        mbarrier.wait(arrivals.index(0), turn)
        total = _multiply(xs, ws, warpgroup_mma_init(sums), 0, ROWS, WIDE)
        gl.thread_barrier()
        _fetch(images, edges, xs, arrivals, tile, 2, HIGH, ROWS, True)
        _announce(maps, gl.minimum(after, tiles - 1), BM)
        if ADDS:
            _announce(plus, tile, BM)
        mbarrier.wait(arrivals.index(1), turn)
        total = _multiply(xs, ws, total, 1, ROWS, WIDE)
        if tile > first:  # the tile before: while six products of this one are on their way
            _finish(sums, added, plus, done, tile - step, BM, ADDS, num_warps)
        total = warpgroup_mma_init(warpgroup_mma_wait(3, deps=[total]))
        gl.thread_barrier()
        _fetch(images, edges, xs, arrivals, after, 0, HIGH, ROWS, after < tiles)
        mbarrier.wait(arrivals.index(2), turn)
        total = _multiply(xs, ws, total, 2, ROWS, WIDE)
        total = warpgroup_mma_init(warpgroup_mma_wait(3, deps=[total]))
        gl.thread_barrier()
        _fetch(images, edges, xs, arrivals, after, 1, HIGH, ROWS, after < tiles)
        sums = warpgroup_mma_wait(0, deps=[total])
        turn = turn ^ 1
    _finish(sums, added, plus, done, first + (tiles - 1 - first) // step * step, BM, ADDS, num_warps)
    for s in gl.static_range(4):
        mbarrier.invalidate(arrivals.index(s))
