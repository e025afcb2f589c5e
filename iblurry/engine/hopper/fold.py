"""Batch norm folded into all convolutions of a body, for inference: one kernel writes every weight and bias."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from iblurry.engine.fused import FusedConvolution, WeightRows
from iblurry.network.bodies import ConvUnit

ROWS = 16  # of a weight, for one block
ACROSS = 64  # values of a row that a block has in registers at a time


class NormFold:
    """Writes the folded weights and biases, as `FoldedBody` computes them.

    The kernel finds everything by a table of addresses on the device. A table is never freed, as captured graphs read
    it; if tensors of the body are replaced, the next call makes another.

    Parameters
    ----------
    units : sequence of ConvUnit
        What is folded.
    convolutions : sequence of FusedConvolution
        What is written, one for each unit.
    """

    def __init__(self, units: Sequence[ConvUnit], convolutions: Sequence[FusedConvolution]) -> None:
        self.layers = [(unit.convolution, unit.norm) for unit in units]
        self.eps = units[0].norm.eps
        self.written = [(convolution.weight, convolution.bias) for convolution in convolutions]
        self._tables: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}  # by the addresses of what is read

    def fits(self) -> bool:
        """Whether all is float32 and becomes bfloat16, in the memory layout that the kernel expects."""
        read, written = self._read(), [tensor for pair in self.written for tensor in pair]
        return (
            all(tensor.dtype is torch.float32 for tensor in read)
            and all(tensor.dtype is torch.bfloat16 for tensor in written)
            and all(_is_dense(tensor) for tensor in [*read, *written])
        )

    def __call__(self) -> None:
        read = self._read()
        addresses = tuple([tensor.data_ptr() for tensor in read])
        if addresses not in self._tables:
            assert self.fits(), "asked before"
            self._tables[addresses] = self._new_table(read)
        table, blocks = self._tables[addresses]
        given = {"ENTRIES": table.shape[1], "ROWS": ROWS, "ACROSS": ACROSS, "num_warps": 4}
        _fold[(len(blocks),)](table, blocks, self.eps, **given, enable_fp_fusion=False)  # rounded as torch rounds

    def _read(self) -> list[Tensor]:
        """Five tensors of each unit."""
        read: list[Any] = []
        for conv, norm in self.layers:
            read += [conv.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var]
        return read

    def _new_table(self, read: list[Tensor]) -> tuple[Tensor, Tensor]:
        """(units, 11) addresses and sizes of each unit, (blocks, 2) the unit and the first row of each block."""
        entries, blocks = [], []
        for i, (weight, bias) in enumerate(self.written):
            tensors = [*read[5 * i : 5 * i + 5], weight, bias]
            rows = WeightRows.of(tensors[0], weight)
            entries.append([*(tensor.data_ptr() for tensor in tensors), *rows])
            blocks += [(i, first) for first in range(0, rows.total, ROWS)]
        device = read[0].device
        return torch.tensor(entries, device=device), torch.tensor(blocks, device=device)


def _is_dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.contiguous_format)


@triton.jit
def _fold(table, blocks, eps, ENTRIES: tl.constexpr, ROWS: tl.constexpr, ACROSS: tl.constexpr):
    """Some rows of one unit's weight; the bias is written beside an output's first row."""
    blocks += tl.program_id(0) * 2
    entry = table + tl.load(blocks) * ENTRIES
    source = tl.load(entry).to(tl.pointer_type(tl.float32))
    gammas = tl.load(entry + 1).to(tl.pointer_type(tl.float32))
    betas = tl.load(entry + 2).to(tl.pointer_type(tl.float32))
    means = tl.load(entry + 3).to(tl.pointer_type(tl.float32))
    variances = tl.load(entry + 4).to(tl.pointer_type(tl.float32))
    weights = tl.load(entry + 5).to(tl.pointer_type(tl.bfloat16))
    biases = tl.load(entry + 6).to(tl.pointer_type(tl.bfloat16))
    total = tl.load(entry + 7).to(tl.int32)
    each = tl.load(entry + 8).to(tl.int32)
    given = tl.load(entry + 9).to(tl.int32)
    length = tl.load(entry + 10)

    row = tl.load(blocks + 1).to(tl.int32) + tl.arange(0, ROWS)
    is_row = row < total
    output = row // each
    var = tl.load(variances + output, mask=is_row, other=1.0)
    scale = tl.div_rn(tl.load(gammas + output, mask=is_row, other=0.0), tl.sqrt_rn(var + eps))
    shift = tl.load(means + output, mask=is_row, other=0.0) * scale
    bias = tl.load(betas + output, mask=is_row, other=0.0) - shift
    tl.store(biases + output, bias.to(tl.bfloat16), mask=is_row & (row % each == 0))
    source += row.to(tl.int64)[:, None] * given
    weights += row.to(tl.int64)[:, None] * length
    for start in range(0, given, ACROSS):
        column = start + tl.arange(0, ACROSS)[None, :]
        is_there = is_row[:, None] & (column < given)
        value = tl.load(source + column, mask=is_there, other=0.0) * scale[:, None]
        tl.store(weights + column, value.to(tl.bfloat16), mask=is_there)
