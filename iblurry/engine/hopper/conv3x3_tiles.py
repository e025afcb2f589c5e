"""What the kernels for 3x3 convolutions of many maps share: a tile of pixels is loaded, multiplied and stored.

Dedicated warps load pixels once for each column of three taps.

The three taps of a column read the same pixels, one row further down each time: a slot of shared memory holds the rows
of a tile and one more at both ends. Pixels are the right operand of a product whose left are 64 outputs: so 256 of them
are read at a time, which is what makes shared memory fast enough for the tensor cores.
"""

# Arguments of a kernel are annotated for its compiler, not for mypy.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma


@gluon.jit
def fetch(
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
def tile_offset(tile, VALUES: gl.constexpr):
    """The offset of a tile's first value."""
    return tile.to(gl.int64) * VALUES


@gluon.jit
def prefetch_l2(maps, tile, VALUES: gl.constexpr):
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
        [maps + tile_offset(tile, VALUES), VALUES * 2],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def multiply(xs, weights, total, slot, down, keep, ROWS: gl.constexpr, WIDE: gl.constexpr, BACK: gl.constexpr):
    """Adds the product of one tap's weights and a slot's pixels to the total, or starts the total with it."""
    pixels = xs.index(slot * (ROWS + 2) + down)._reinterpret(xs.dtype, [ROWS * WIDE, 64], weights.layout)
    left = weights.permute([1, 0]) if BACK else weights
    return warpgroup_mma(left, pixels.permute([1, 0]), total, use_acc=keep, is_async=True)


@gluon.jit
def release(free, slot, wanted):
    """Marks a slot as free once all four warps have finished their products of it."""
    gl.thread_barrier()
    mbarrier.arrive(free.index(slot), pred=wanted)


@gluon.jit
def output_offsets(BM: gl.constexpr, OUTPUTS: gl.constexpr):
    """Offsets of 64 outputs of a tile's pixels, relative to the first."""
    whole_rows: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    pixel = gl.arange(0, BM, gl.SliceLayout(1, whole_rows))
    return pixel[:, None] * OUTPUTS + gl.arange(0, 64, gl.SliceLayout(0, whole_rows))[None, :]


@gluon.jit
def load_bias(bias, BM: gl.constexpr):
    """Loads the bias of 64 outputs, as a column."""
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    return gl.load(bias + gl.arange(0, 64, gl.SliceLayout(1, accumulator))).to(gl.float32)[:, None]


@gluon.jit
def store_outputs(sums, more, done, place, ADDS: gl.constexpr):
    """Stores 64 outputs of a tile's pixels, with the added maps."""
    result = gl.convert_layout(sums.to(gl.bfloat16).permute([1, 0]), place.type.layout)
    if ADDS:
        result = (result.to(gl.float32) + more.to(gl.float32)).to(gl.bfloat16)
    gl.store(done + place, result)
