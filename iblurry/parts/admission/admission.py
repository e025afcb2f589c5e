"""Admission: which row does this sample take?"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from iblurry.memory import Sample
from iblurry.parts.part import Part


class Admission(Part):
    """Decides whom a newcomer replaces. A memory with room left takes everyone and asks nobody."""

    kind: ClassVar[str] = "admission"
    keeps_all: ClassVar[bool] = False  # needs a row for every sample of the stream, whatever the budget

    def on_offered(self, sample: Sample) -> None:
        """A sample is offered; it is not in the memory yet."""

    def admit(self, sample: Sample) -> Tensor:
        """The sample goes where `place` says, or into free space; the row, shape (1,)."""
        memory = self.context.memory
        row = self.choose_row(sample) if memory.full else memory.next_row()
        memory.write(row, sample)
        self.on_stored(row, sample)
        return row

    @abstractmethod
    def choose_row(self, sample: Sample) -> Tensor:
        """The row this sample takes in a full memory, shape (1,); `memory.discard` turns it away."""

    def on_stored(self, row: Tensor, sample: Sample) -> None:
        """The sample was written to this row, into free space or in another's place."""
