"""Scalar products between gradients, over all weights together, and what is made of them: weights are read once."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from iblurry.network.hopper.launch import launch

CHUNK = 1024  # values of each group that a block multiplies
PIECE = 4096  # values of both sides that a block of `project` has
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
    for row, place, count in zip(rows, parts.split(chunks), chunks, strict=True):
        launch(_multiply, count, row, place, row.shape[1], GROUPS=groups, PADDED=padded, CHUNK=CHUNK, num_warps=8)
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
    lengths = [g.numel() for g in gradients]
    ends = list(itertools.accumulate(triton.cdiv(length, PIECE) for length in lengths))
    given = tuple(gradients), tuple(reference)
    sizes = {"FIRSTS": (0, *ends[:-1]), "LENGTHS": tuple(lengths), "PIECE": PIECE, "num_warps": 8}
    parts, share = gradients[0].new_empty(2, ends[-1]), gradients[0].new_empty(())
    _multiply_all[(ends[-1],)](*given, parts, ends[-1], **sizes)
    _find_share[(1,)](parts, share, ends[-1], PIECE=PIECE, num_warps=8)
    _subtract_all[(ends[-1],)](*given, share, **sizes)


@triton.jit
def _place(gradients, reference, FIRSTS: tl.constexpr, LENGTHS: tl.constexpr, PIECE: tl.constexpr):
    """(gradient, reference, mask) of a block's values: the tensor that it has a piece of, in the order of memory."""
    block = tl.program_id(0)
    mine, other = gradients[0].to(tl.int64), reference[0].to(tl.int64)
    first, length = 0, LENGTHS[0]
    for i in tl.static_range(1, len(LENGTHS)):
        is_here = block >= FIRSTS[i]
        mine = tl.where(is_here, gradients[i].to(tl.int64), mine)
        other = tl.where(is_here, reference[i].to(tl.int64), other)
        first = tl.where(is_here, FIRSTS[i], first)
        length = tl.where(is_here, LENGTHS[i], length)
    at = (block - first) * PIECE + tl.arange(0, PIECE)
    kind: tl.constexpr = tl.pointer_type(tl.float32)
    return mine.to(kind) + at, other.to(kind) + at, at < length


@triton.jit(do_not_specialize=["blocks"])
def _multiply_all(
    gradients, reference, parts, blocks, FIRSTS: tl.constexpr, LENGTHS: tl.constexpr, PIECE: tl.constexpr
):
    mine, other, is_there = _place(gradients, reference, FIRSTS, LENGTHS, PIECE)
    g, r = tl.load(mine, mask=is_there, other=0.0), tl.load(other, mask=is_there, other=0.0)
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


@triton.jit
def _subtract_all(gradients, reference, share, FIRSTS: tl.constexpr, LENGTHS: tl.constexpr, PIECE: tl.constexpr):
    taken = tl.load(share)
    if taken < 0:
        mine, other, is_there = _place(gradients, reference, FIRSTS, LENGTHS, PIECE)
        value = tl.load(mine, mask=is_there) - taken * tl.load(other, mask=is_there)
        tl.store(mine, value, mask=is_there)
