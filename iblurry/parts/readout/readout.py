"""Readout: how is a query answered?"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from iblurry.memory import Sample
from iblurry.parts.part import Part


class Readout(Part):
    """Turns images into logits. It may change its own state when asked, never the learner's."""

    kind: ClassVar[str] = "readout"
    refits: ClassVar[bool] = False  # trains on the memory, as `Method.refit` says

    def takes(self, sample: Sample) -> bool:
        """Whether it keeps this sample for itself: then it is neither trained on nor stored."""
        return False

    @property
    def only_at_end(self) -> bool:
        """Whether it is worth asking only when the stream has ended."""
        return False

    def finish_pending(self) -> None:
        """Work that a boundary left to do, before the next sample or answer; a resume may fall into it."""

    def prepare(self) -> None:
        """Makes itself ready for queries at this moment of the stream."""

    @abstractmethod
    def logits(self, images: Tensor) -> Tensor:
        """The answer to plain images (uint8), (B, rows)."""
