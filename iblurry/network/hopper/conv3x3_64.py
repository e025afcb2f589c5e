"""Inference of a 3x3 convolution of 64 channels to 64 by one kernel, whose weights stay in shared memory."""

# Arguments of a kernel are annotated for its compiler, not for mypy.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from iblurry.network.hopper.conv3x3 import (
    PIXELS,
    fetch,
    launch,
    multiply,
    output_offsets,
    prefetch_l2,
    release,
    store_outputs,
    tile_offset,
)

CHANNELS = 64  # inputs and outputs


def fits(channels: int, outputs: int, high: int, wide: int, side: int, stride: int) -> bool:
    """Whether this kernel computes a convolution of this size."""
    narrow = (channels, outputs, side, stride) == (CHANNELS, CHANNELS, 3, 1)
    return narrow and wide in (16, 32, 64) and high % (PIXELS // wide) == 0


def convolve(maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None = None) -> Tensor:
    """relu(weight * maps + bias) + plus, padded by one pixel; all is bfloat16 and lies channels last."""
    return launch(_convolve, CHANNELS, maps, weight, bias, plus)


@gluon.jit
def _convolve(
    images, edges, kernel, maps, bias, plus, done, tiles, HIGH: gl.constexpr, WIDE: gl.constexpr, ROWS: gl.constexpr,
    ADDS: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """A product of (outputs, taps * channels) and (taps * channels, pixels), tile after tile by the same block.

    Two groups of four warps alternate: while one stores its tile, the other uses the tensor cores.
    """
    xs = gl.allocate_shared_memory(images.dtype, [3 * (ROWS + 2), WIDE, 64], kernel.layout)
    ws = gl.allocate_shared_memory(kernel.dtype, [9, 64, 64], kernel.layout)
    arrivals = gl.allocate_shared_memory(gl.int64, [7, 1], mbarrier.MBarrierLayout())  # by group and slot; the weights
    free = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(7):
        mbarrier.init(arrivals.index(s), count=1)
    for s in gl.static_range(3):
        mbarrier.init(free.index(s), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_compute, (xs, ws, arrivals, free, bias, plus, done, tiles, gl.constexpr(0), WIDE, ROWS, ADDS)),
            (_compute, (xs, ws, arrivals, free, bias, plus, done, tiles, gl.constexpr(1), WIDE, ROWS, ADDS)),
            (_load, (images, edges, kernel, maps, plus, xs, ws, arrivals, free, tiles, HIGH, WIDE, ROWS, ADDS)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _load(
    images, edges, kernel, maps, plus, xs, ws, arrivals, free, tiles, HIGH: gl.constexpr, WIDE: gl.constexpr,
    ROWS: gl.constexpr, ADDS: gl.constexpr,
):  # fmt: skip
    """Loads the weights, then one tile after the other: a slot for each column of taps."""
    mbarrier.expect(arrivals.index(6), 9 * kernel.block_type.nbytes)
    for tap in gl.static_range(9):
        tma.async_copy_global_to_shared(kernel, [0, tap * 64], arrivals.index(6), ws.index(tap))
    VALUES: gl.constexpr = ROWS * WIDE * 64
    step = gl.num_programs(0)
    turn = 0
    for tile in range(gl.program_id(0), tiles, step):
        for s in gl.static_range(3):
            mbarrier.wait(free.index(s), turn ^ 1)
            arrival = arrivals.index(turn * 3 + s)
            mbarrier.expect(arrival, images.block_type.nbytes + edges.block_type.nbytes)
            fetch(images, edges, xs, arrival, s, tile, s - 1, 0, HIGH, ROWS)
        after = gl.minimum(tile + step, tiles - 1)
        prefetch_l2(maps, after, VALUES)
        if ADDS:
            prefetch_l2(plus, after, VALUES)
        turn = turn ^ 1


@gluon.jit
def _compute(
    xs, ws, arrivals, free, bias, plus, done, tiles, GROUP: gl.constexpr, WIDE: gl.constexpr, ROWS: gl.constexpr,
    ADDS: gl.constexpr,
):  # fmt: skip
    """Computes every second tile of the block."""
    BM: gl.constexpr = ROWS * WIDE
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    added = gl.load(bias + gl.arange(0, 64, gl.SliceLayout(1, accumulator))).to(gl.float32)[:, None]
    place = output_offsets(BM, 64)
    step = gl.num_programs(0)
    turn = 0
    mbarrier.wait(arrivals.index(6), 0)
    for tile in range(gl.program_id(0) + GROUP * step, tiles, 2 * step):
        total = warpgroup_mma_init(gl.zeros([64, BM], gl.float32, accumulator))
        start = tile_offset(tile, BM * 64)
        more = gl.load(plus + start + place) if ADDS else bias
        for s in range(3):
            mbarrier.wait(arrivals.index(GROUP * 3 + s), turn)
            for down in gl.static_range(3):
                total = multiply(xs, ws.index(down * 3 + s), total, s, down, s + down > 0, ROWS, WIDE)
            total = warpgroup_mma_init(warpgroup_mma_wait(3, deps=[total]))
            release(free, s - 1, s > 0)
        sums = warpgroup_mma_wait(0, deps=[total])
        release(free, 2, True)
        store_outputs(sums, added, more, done + start, place, ADDS)
        turn = turn ^ 1
