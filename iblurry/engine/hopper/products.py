"""Scalar products between gradients, over all weights together, and what is made of them: weights are read once."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from iblurry.engine.hopper.launch import launch
from iblurry.engine.hopper.pieces import PIECE, Pieces, pick, place

CHUNK = 1024  # values of each group that a block multiplies
TINY = tl.constexpr(1.1754943508222875e-38)  # float32's smallest normal number


def with_first(gradients: Sequence[Tensor]) -> Tensor:
    """(2, groups): products of the first group's gradient with each one's, and the squared lengths.

    Parameters
    ----------
    gradients : sequence of Tensor
        (groups, ...) of each weight, float32.
    """
    rows = [_as_rows(gradient) for gradient in gradients]
    small = [row for row in rows if row.shape[1] < CHUNK]
    rows = [row for row in rows if row.shape[1] >= CHUNK] + ([torch.cat(small, 1)] if small else [])
    chunks = [triton.cdiv(row.shape[1], CHUNK) for row in rows]
    groups, padded = len(rows[0]), triton.next_power_of_2(len(rows[0]))
    parts = rows[0].new_empty(sum(chunks), 2, padded)
    for row, part, count in zip(rows, parts.split(chunks), chunks, strict=True):
        launch(_multiply, count, row, part, row.shape[1], GROUPS=groups, PADDED=padded, CHUNK=CHUNK, num_warps=8)
    return parts.sum(0)[:, :groups]


def _as_rows(gradient: Tensor) -> Tensor:
    """(groups, values), in the order in which they lie in memory: without a copy."""
    steps = gradient.stride()
    order = sorted(range(1, gradient.dim()), key=lambda axis: -steps[axis])
    return gradient.permute(0, *order).flatten(1).contiguous()


@triton.jit(do_not_specialize=["length"])
def _multiply(values, done, length, GROUPS: tl.constexpr, PADDED: tl.constexpr, CHUNK: tl.constexpr):
    block = tl.program_id(0)
    group = tl.arange(0, PADDED)
    column = block * CHUNK + tl.arange(0, CHUNK)
    is_there = column < length
    mask = (group < GROUPS)[:, None] & is_there[None, :]
    all_groups = tl.load(values + group[:, None] * length + column[None, :], mask=mask, other=0.0)
    first = tl.load(values + column, mask=is_there, other=0.0)
    to = done + block * 2 * PADDED + group
    tl.store(to, tl.sum(all_groups * first[None, :], 1))
    tl.store(to + PADDED, tl.sum(all_groups * all_groups, 1))


def project(gradients: Sequence[Tensor], reference: Sequence[Tensor]) -> None:
    """g <- g - min(0, g.r) / (r.r) * r over all tensors together, in place; float32 on both sides."""
    pairs = zip(gradients, reference, strict=True)
    reference = [r if r.stride() == g.stride() else torch.empty_like(g).copy_(r) for g, r in pairs]
    pieces = Pieces.of(gradients, reference)
    parts, share = gradients[0].new_empty(2, pieces.blocks), gradients[0].new_empty(())
    _multiply_all[(pieces.blocks,)](*pieces.given, parts, pieces.blocks, PIECE=PIECE, num_warps=8)
    _find_share[(1,)](parts, share, pieces.blocks, PIECE=PIECE, num_warps=8)
    _subtract_all[(pieces.blocks,)](*pieces.given, share, PIECE=PIECE, num_warps=8)


@triton.jit(do_not_specialize=["count", "blocks"])
def _multiply_all(tensors, sizes, addresses, count, parts, blocks, PIECE: tl.constexpr):
    mine, at, is_there = place(tensors, sizes, count, PIECE)
    g = tl.load(pick(addresses, mine, count, 0) + at, mask=is_there, other=0.0)
    r = tl.load(pick(addresses, mine, count, 1) + at, mask=is_there, other=0.0)
    tl.store(parts + tl.program_id(0), tl.sum(g * r, 0))
    tl.store(parts + blocks + tl.program_id(0), tl.sum(r * r, 0))


@triton.jit(do_not_specialize=["blocks"])
def _find_share(parts, share, blocks, PIECE: tl.constexpr):
    """min(0, g.r) / (r.r)."""
    product = tl.zeros([PIECE], tl.float32)
    square = tl.zeros([PIECE], tl.float32)
    for start in range(0, blocks, PIECE):
        at = start + tl.arange(0, PIECE)
        product += tl.load(parts + at, mask=at < blocks, other=0.0)
        square += tl.load(parts + blocks + at, mask=at < blocks, other=0.0)
    tl.store(share, tl.minimum(tl.sum(product, 0), 0.0) / tl.maximum(tl.sum(square, 0), TINY))


@triton.jit(do_not_specialize=["count"])
def _subtract_all(tensors, sizes, addresses, count, share, PIECE: tl.constexpr):
    taken = tl.load(share)
    if taken < 0:
        mine, at, is_there = place(tensors, sizes, count, PIECE)
        to = pick(addresses, mine, count, 0) + at
        r = tl.load(pick(addresses, mine, count, 1) + at, mask=is_there)
        tl.store(to, tl.load(to, mask=is_there) - taken * r, mask=is_there)
