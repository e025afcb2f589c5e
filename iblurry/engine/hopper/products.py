"""Scalar products between gradients, over all weights together: each gradient is read once."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from iblurry.engine.hopper.launch import launch

CHUNK = 1024  # values of each group that a block multiplies


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
