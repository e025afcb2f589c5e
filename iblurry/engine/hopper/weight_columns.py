"""The gradient for the weights of a 3x3 convolution of many maps: a block has a column of three taps.

They read the same pixels, one row further down each time, so that each is loaded for three products instead of one.
"""

# Arguments of a kernel are annotated for its compiler, not for mypy.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

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

from iblurry.engine.hopper.conv3x3_tiles import fetch


@gluon.jit(do_not_specialize=["steps", "each"])
def column_gradient(
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
        _fetch(grads, maps, edges, gs, xs, arrivals, begin + s, s, across, output, channel, HIGH, ROWS, begin + s < end)

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
        _fetch(
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
def _fetch(
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
    fetch(maps, edges, xs, arrival, slot, step, across - 1, channel, HIGH, ROWS, wanted)


@gluon.jit
def _rows(xs, slot, down, ROWS: gl.constexpr, WIDE: gl.constexpr, lines: gl.constexpr):
    """A step's pixels, so many rows below the first of its slot."""
    return xs.index(slot * (ROWS + 2) + down)._reinterpret(xs.dtype, [ROWS * WIDE, 64], lines)
