"""The 3x3 convolution of 128 channels to 128."""

# Arguments of a kernel are annotated for its compiler, not for mypy.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from iblurry.engine.hopper.conv3x3_tiles import (
    fetch,
    load_bias,
    multiply,
    output_offsets,
    prefetch_l2,
    release,
    store_outputs,
    tile_offset,
)


@gluon.jit(do_not_specialize=["tiles", "beside"])
def convolve_128(
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
            fetch(images, edges, xs, arrivals.index(slot), slot, tile, k // 2 - 1, k % 2 * 64, HIGH, ROWS)
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
        prefetch_l2(maps, after, VALUES)
        if ADDS:
            prefetch_l2(plus, after, VALUES)


@gluon.jit
def _compute_128(
    xs, ws, arrivals, free, bias, plus, done, tiles, beside, GROUP: gl.constexpr, WIDE: gl.constexpr,
    ROWS: gl.constexpr, ADDS: gl.constexpr,
):  # fmt: skip
    """Computes half of the outputs; waits for one tap's products while the next tap's run."""
    BM: gl.constexpr = ROWS * WIDE
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    added = load_bias(bias + GROUP * 64, BM)
    place = output_offsets(BM, 128)
    stage = 0
    for tile in range(gl.program_id(0), tiles, beside):
        total = warpgroup_mma_init(gl.zeros([64, BM], gl.float32, accumulator))
        start = tile_offset(tile, BM * 128) + GROUP * 64
        more = gl.load(plus + start + place) if ADDS else bias
        for k in range(6):
            mbarrier.wait(arrivals.index(stage % 3), stage // 3 & 1)
            for down in gl.static_range(3):
                at = k % 2 * 3 + down
                mbarrier.wait(arrivals.index(3 + at), stage // 2 & 1)
                total = multiply(xs, ws.index(at * 2 + GROUP), total, stage % 3, down, k + down > 0, ROWS, WIDE, False)
                total = warpgroup_mma_init(warpgroup_mma_wait(1, deps=[total]))
                if down > 0:
                    release(free, at - 1, True)
                else:
                    release(free, 5 - k % 2 * 3, k > 0)
            stage += 1
        sums = warpgroup_mma_wait(0, deps=[total])
        release(free, 5, True)
        store_outputs(gl.maximum(sums + added, 0.0), more, done + start, place, ADDS)
