"""Readout: how is a query answered?"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from iblurry.memory import One
from iblurry.parts.part import Part


class Readout(Part):
    """Turns images into logits. It may change its own state when asked, never the learner's."""

    kind: ClassVar[str] = "readout"

    def claims(self, one: One) -> bool:
        """Whether it keeps this sample for itself: then it is neither trained on nor stored."""
        return False

    def settle(self) -> None:
        """Makes itself ready for queries at this moment of the stream."""

    @abstractmethod
    def logits(self, images: Tensor) -> Tensor:
        """The answer to plain images (uint8), (B, rows)."""
