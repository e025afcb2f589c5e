"""Rehearsal: which memory rows join this batch?"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from iblurry.memory import Batch
from iblurry.parts.context import Drawn
from iblurry.parts.part import Part


class Rehearsal(Part):
    """Chooses rows to train on, out of the `draws` rows the host drew for it."""

    kind: ClassVar[str] = "rehearsal"

    def joins(self, drawn: int) -> int:
        """How many of so many drawn rows join the batch."""
        return min(self.rows_per_update, drawn)

    @abstractmethod
    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        """The rows that join the streamed samples, given the rows drawn at random."""
