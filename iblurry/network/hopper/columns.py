"""What our kernels of 3x3 share that fetch pixels once for each column of taps, with warps for it that do nothing else.

A column's three taps meet the same pixels, seen from one row further down each time: a slot of shared memory has the
rows of a tile and one more at both ends. Pixels are the right side of a product, whose left are 64 outputs: so it reads
256 of them at a time, and shared memory can give what the tensor cores want.
"""

# What a kernel's arguments are is the compiler's business (it wants its own annotations, and no others).
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma

from iblurry.network.hopper.maps import described, weights_described

PIXELS = 256  # of a tile: whole rows of one image
SLICE = 64  # channels multiplied at a time, and outputs of four warps


def tiles(count: int, high: int, wide: int) -> int:
    """How many there are of so many maps."""
    return count * high * wide // PIXELS


def launch(kernel: Any, outputs: int, maps: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None) -> Tensor:
    """One block of a kernel for each multiprocessor; weights are fetched for so many outputs at a time."""
    count, _, high, wide = maps.shape
    there = tiles(count, high, wide)
    done = maps.new_empty(count, high, wide, len(weight)).permute(0, 3, 1, 2)
    kernel[(min(there, torch.cuda.get_device_properties(maps.device).multi_processor_count),)](
        described(maps, 1, 1, PIXELS // wide, SLICE),
        described(maps, 1, 1, 2, SLICE),
        weights_described(weight, [outputs, SLICE]),
        maps,
        bias,
        done if plus is None else plus,
        done,
        there,
        HIGH=high,
        WIDE=wide,
        ROWS=PIXELS // wide,
        ADDS=plus is not None,
        num_warps=4,
    )
    return done


@gluon.jit
def fetch(images, edges, xs, arrival, slot, tile, across, channel, HIGH: gl.constexpr, ROWS: gl.constexpr):
    """Sends for a tile's rows and those around it, shifted across; outside an image there are 0s."""
    image = tile // (HIGH // ROWS)
    row = tile % (HIGH // ROWS) * ROWS - 1
    most = xs.index(slot * (ROWS + 2))._reinterpret(images.dtype, images.block_type.shape, images.layout)
    rest = xs.index(slot * (ROWS + 2) + ROWS)._reinterpret(edges.dtype, edges.block_type.shape, edges.layout)
    tma.async_copy_global_to_shared(images, [image, row, across, channel], arrival, most)
    tma.async_copy_global_to_shared(edges, [image, row + ROWS, across, channel], arrival, rest)


@gluon.jit
def begins(tile, VALUES: gl.constexpr):
    """Where a tile of so many values does."""
    return tile.to(gl.int64) * VALUES


@gluon.jit
def announce(maps, tile, VALUES: gl.constexpr):
    """Has a tile's own values, which lie together, brought as far as the second cache: one thread says so for all."""
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
        [maps + begins(tile, VALUES), VALUES * 2],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def multiply(xs, weights, total, slot, down, keep, ROWS: gl.constexpr, WIDE: gl.constexpr):
    """Adds what one tap makes of a slot, or begins with it."""
    pixels = xs.index(slot * (ROWS + 2) + down)._reinterpret(xs.dtype, [ROWS * WIDE, 64], weights.layout)
    return warpgroup_mma(weights, pixels.permute([1, 0]), total, use_acc=keep, is_async=True)


@gluon.jit
def release(free, slot, wanted):
    """Lets a slot be filled again, once the products of it are done for all four warps."""
    gl.thread_barrier()
    mbarrier.arrive(free.index(slot), pred=wanted)


@gluon.jit
def places(BM: gl.constexpr, OUTPUTS: gl.constexpr):
    """Where 64 outputs of a tile's pixels lie, from the first on."""
    whole_rows: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    pixel = gl.arange(0, BM, gl.SliceLayout(1, whole_rows))
    return pixel[:, None] * OUTPUTS + gl.arange(0, 64, gl.SliceLayout(0, whole_rows))[None, :]


@gluon.jit
def finish(sums, bias, more, done, place, ADDS: gl.constexpr):
    """Stores 64 outputs of a tile's pixels: with the bias, the ReLU and the sum behind them."""
    ended = gl.maximum(sums + bias, 0.0).to(gl.bfloat16)
    result = gl.convert_layout(ended.permute([1, 0]), place.type.layout)
    if ADDS:
        result = (result.to(gl.float32) + more.to(gl.float32)).to(gl.bfloat16)
    gl.store(done + place, result)
