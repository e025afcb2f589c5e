"""The 3x3 convolution of 64 channels to 64: its weights stay in shared memory."""

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
def convolve_64(
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
            fetch(images, edges, xs, arrival, s, tile, s - 1, 0, HIGH, ROWS)
        after = gl.minimum(tile + beside, end - 1)
        prefetch_l2(maps, after, VALUES)
        if ADDS:
            prefetch_l2(plus, after, VALUES)
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
    added = load_bias(bias, BM) if ENDS else 0.0
    place = output_offsets(BM, 64)
    turn = 0
    mbarrier.wait(arrivals.index(6), 0)
    for tile in range(first + GROUP * beside, end, 2 * beside):
        total = warpgroup_mma_init(gl.zeros([64, BM], gl.float32, accumulator))
        start = tile_offset(tile, BM * 64)
        more = gl.load(plus + start + place) if ADDS else bias
        for s in range(3):
            mbarrier.wait(arrivals.index(GROUP * 3 + s), turn)
            for down in gl.static_range(3):
                tap = 8 - down * 3 - s if BACK else down * 3 + s
                total = multiply(xs, ws.index(tap), total, s, down, s + down > 0, ROWS, WIDE, BACK)
            total = warpgroup_mma_init(warpgroup_mma_wait(3, deps=[total]))
            release(free, s - 1, s > 0)
        sums = warpgroup_mma_wait(0, deps=[total])
        release(free, 2, True)
        if ENDS:
            sums = gl.maximum(sums + added, 0.0)
        store_outputs(sums, more, done + start, place, ADDS)
        turn = turn ^ 1
