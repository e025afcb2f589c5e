"""Kernels over all weights together: each block has a piece of one tensor, in the order of memory."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

PIECE = 2048  # values of a block
MOST = 256  # addresses that are arguments of one launch


class Pieces(NamedTuple):
    """How tensors are divided into blocks; the first arguments of a kernel that uses `place` and `pick`."""

    blocks: int
    tensors: Tensor  # (blocks,) int32: which tensor each has a piece of
    sizes: Tensor  # (2, tensors) int32: the first block of each tensor, and its values
    addresses: Tensor  # (lists, tensors) int64

    @classmethod
    def of(cls, *lists: Sequence[Tensor]) -> Pieces:
        """Divides several lists of float32 tensors: those at one place have the same shape and strides, without
        gaps.
        """
        lengths, device = tuple([values.numel() for values in lists[0]]), lists[0][0].device
        addresses = torch.empty(len(lists), len(lengths), dtype=torch.int64, device=device)
        for values, row in zip(lists, addresses, strict=True):  # kernels of more arguments take longer to compile
            for first in range(0, len(values), MOST):
                _write_addresses[(1,)](row[first:], tuple(values[first : first + MOST]), num_warps=1)
        return cls(*_divide(lengths, device), addresses)

    @property
    def given(self) -> tuple[Any, ...]:
        return (*self[1:], len(self.sizes[0]))


def fixed_addresses(*lists: Sequence[Tensor]) -> Tensor:
    """(lists, tensors) int64, for `pick`; of tensors that stay where they are, so that it is written once."""
    return _keep_addresses(tuple([tuple([values.data_ptr() for values in one]) for one in lists]), lists[0][0].device)


# Tables are never freed: captured graphs read them.
@functools.cache
def _keep_addresses(addresses: tuple[tuple[int, ...], ...], device: torch.device) -> Tensor:
    return torch.tensor(addresses, device=device)


@functools.cache
def _divide(lengths: tuple[int, ...], device: torch.device) -> tuple[int, Tensor, Tensor]:
    """Once for weights of the same sizes: a step that is being captured cannot send it to the device."""
    counts = torch.tensor([triton.cdiv(length, PIECE) for length in lengths])
    tensors = torch.arange(len(lengths), dtype=torch.int32).repeat_interleave(counts)
    sizes = torch.stack([counts.cumsum(0) - counts, torch.tensor(lengths)]).to(torch.int32)
    return len(tensors), tensors.to(device), sizes.to(device)


@triton.jit
def _write_addresses(to, tensors):
    for i in tl.static_range(len(tensors)):
        tl.store(to + i, tensors[i].to(tl.int64))


@triton.jit
def place(tensors, sizes, count, PIECE: tl.constexpr):
    """Which tensor a block has a piece of, where its values are in it, and which of them are there."""
    mine = tl.load(tensors + tl.program_id(0))
    at = (tl.program_id(0) - tl.load(sizes + mine)) * PIECE + tl.arange(0, PIECE)
    return mine, at, at < tl.load(sizes + count + mine)


@triton.jit
def pick(addresses, mine, count, LIST: tl.constexpr):
    """Returns the tensor of this list that a block has a piece of."""
    return tl.load(addresses + LIST * count + mine).to(tl.pointer_type(tl.float32))
