"""The memory: a fixed number of rows on the device, one more for rejected samples, and named columns."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.errors import InputError

REMOVED = -1  # the label of an empty row, and of a sample that was removed before it was stored


class Batch(NamedTuple):
    """Some samples: pixels and the head rows of their labels."""

    images: Tensor  # (B, C, H, W) uint8
    labels: Tensor  # (B,) int64, head rows

    def joined(self, others: Batch) -> Batch:
        """These samples, then the others."""
        if not len(self.labels):
            return others
        return Batch(torch.cat([self.images, others.images]), torch.cat([self.labels, others.labels]))


class Sample(NamedTuple):
    """One sample: a batch of one whose head row the host knows too."""

    images: Tensor  # (1, C, H, W) uint8
    labels: Tensor  # (1,) int64
    label: int  # the same head row, on the host


class Encoded(NamedTuple):
    """Images as a learner stores them: pixels, or features of its frozen body; `Learner.encode` makes it."""

    values: Tensor  # (B, ...) uint8, on the learner's device


def check_room(rows: int, row_bytes: int) -> None:
    """InputError for more bytes than this machine has: its system may promise them and then end the program."""
    needed, available = rows * row_bytes / 2**30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if needed > available:
        sizes = f"{needed:,.1f} GiB, and this machine has {available:,.1f}"
        raise InputError(f"memory={rows} samples take {sizes}; give a smaller memory or smaller images.")


class Memory:
    """`capacity` rows that never move, then the discard row: a rejected sample is written there.

    Rows fill in order 0, 1, 2, ...; only a full memory asks an admission policy. `written_at` numbers the writes from
    1, so 0 marks a row never written, and the order of two rows' last writes can be told on the device. Every sample of
    the stream is written once, if only to the discard row, so that this is the sample's number, too.

    >>> memory = Memory(2, (1, 2, 2))
    >>> memory.write(memory.next_row(), Sample(torch.ones(1, 1, 2, 2, dtype=torch.uint8), torch.tensor([5]), 5))
    >>> memory.size, memory.labels.tolist()
    (1, [5, -1, -1])
    """

    def __init__(self, capacity: int, shape: tuple[int, int, int], device: torch.device | str = "cpu") -> None:
        self.capacity = capacity
        self.device = torch.device(device)
        if self.device.type == "cpu":
            check_room(capacity, math.prod(shape))
        self.size = 0  # rows filled
        self.offered = 0  # samples ever offered, taken or not
        self.images = torch.zeros(capacity + 1, *shape, dtype=torch.uint8, device=device)
        flat = self.images.view(capacity + 1, -1)
        self._words = flat.view(torch.int64) if flat.shape[1] % 8 == 0 else flat  # the same, read eight bytes at a time
        self.labels = torch.full((capacity + 1,), REMOVED, dtype=torch.int64, device=device)
        self.written_at = torch.zeros(capacity + 1, dtype=torch.int64, device=device)
        self.clock = torch.zeros(1, dtype=torch.int64, device=device)  # writes so far, the discard row's too
        self._columns: dict[str, Tensor] = {}
        self._fills: dict[str, float] = {}  # start value of each column
        self._rows = torch.arange(capacity + 1, device=device)

    @property
    def full(self) -> bool:
        return self.size == self.capacity

    @property
    def discard(self) -> Tensor:
        """The row for rejected samples, shape (1,)."""
        return self._rows[self.capacity :]

    def next_row(self) -> Tensor:
        """The first row never written, shape (1,)."""
        return self._rows[self.size : self.size + 1]

    def row(self, number: int) -> Tensor:
        """A row number of the host's as the tensor the device wants, shape (1,)."""
        return self._rows[number : number + 1]

    def write(self, row: Tensor, sample: Sample) -> None:
        """Puts the sample into this row (shape (1,)), whatever was there."""
        self.clock += 1
        self.images.index_copy_(0, row, sample.images)
        self.labels.index_copy_(0, row, sample.labels)
        self.written_at.index_copy_(0, row, self.clock)
        self.size = min(self.size + 1, self.capacity)

    def window(self, start: int, count: int) -> Tensor:
        """Returns so many filled rows after the `start`-th row of a full memory, (count,); the first follow the last.

        In a memory that is not full, after a row at the same share of those that are filled.
        """
        first = start % self.capacity * self.size // self.capacity
        return torch.arange(first, first + count, device=self.device) % self.size

    def read(self, rows: Tensor) -> Batch:
        images = self._words.index_select(0, rows).view(torch.uint8).view(len(rows), *self.images.shape[1:])
        return Batch(images, self.labels.index_select(0, rows))

    def filled(self) -> Tensor:
        """Which rows hold a sample, (capacity,) bool."""
        return self.written_at[:-1] > 0

    def measured_twice(self, before: Tensor, losses: Tensor, mark: Tensor) -> Tensor:
        """Which rows have a loss now and before, and were not written after the clock showed `mark`, (capacity,) bool.

        Parameters
        ----------
        before, losses : Tensor
            (capacity,) then and now; negative where a row was not measured.
        mark : Tensor
            The clock when the earlier ones were measured.
        """
        known = ~((before < 0) | (losses < 0))  # NaN is a measured loss
        return self.filled() & (self.written_at[:-1] <= mark) & known

    def members(self, label: int | Tensor) -> Tensor:
        """Which rows hold this label (of the device: shape (1,)), (capacity,) bool."""
        return self.labels[:-1] == label

    def column(
        self, name: str, *, fill: float = 0.0, dtype: torch.dtype | str = "float64", shape: Sequence[int] = ()
    ) -> Tensor:
        """A number per row, or an array of this shape, made when first asked for, (capacity + 1, *shape).

        Writing a sample leaves it as it is.
        """
        if name not in self._columns:
            dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
            self._columns[name] = torch.full((self.capacity + 1, *shape), fill, dtype=dtype, device=self.device)
            self._fills[name] = fill
        return self._columns[name]

    def relabel(self, rows: Tensor, label: int) -> None:
        """Gives these rows, (capacity,) bool, another label."""
        self.labels[:-1].masked_fill_(rows, label)

    def remove(self, rows: Tensor) -> None:
        """Empties these rows, (capacity,) bool; the others move up in order, so that the filled ones stay the first."""
        kept = (self.filled() & ~rows).nonzero().flatten()
        starts = [(self.images, 0.0), (self.labels, REMOVED), (self.written_at, 0.0)]
        for values, start in starts + [(self._columns[name], self._fills[name]) for name in self._columns]:
            values[: len(kept)] = values[kept]
            values[len(kept) : -1] = start
        self.size = len(kept)

    def state_dict(self) -> dict[str, object]:
        return {
            "size": self.size,
            "offered": self.offered,
            "images": self.images,
            "labels": self.labels,
            "written_at": self.written_at,
            "clock": self.clock,
            "columns": dict(self._columns),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.size, self.offered = state["size"], state["offered"]
        for name in ("images", "labels", "written_at", "clock"):
            getattr(self, name).copy_(state[name])
        for name, saved in state["columns"].items():
            self.column(name, dtype=saved.dtype, shape=saved.shape[1:]).copy_(saved)
