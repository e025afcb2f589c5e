"""Readout: how is a query answered? Plain: by the network as it is."""

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
    learns: ClassVar[bool] = False  # from each sample by itself, so that no update is needed

    @property
    def only_at_end(self) -> bool:
        """Whether a run should query it only when the stream has ended."""
        return False

    @property
    def needs_fixed_body(self) -> bool:
        """Whether what it keeps of samples is worth nothing once the body is trained."""
        return False

    def takes(self, sample: Sample) -> bool:
        """Whether it keeps this sample for itself: then it is neither trained on nor stored."""
        return False

    def finish_pending(self) -> None:
        """Does what a task end left to do, before the next sample or answer; a run may be interrupted in it."""

    def prepare(self) -> None:
        """Called once before the queries at a moment of the stream."""

    @abstractmethod
    def logits(self, images: Tensor) -> Tensor:
        """The answer to plain images (uint8), (B, rows)."""


class Plain(Readout):
    """The network in eval mode, as it is."""

    def logits(self, images: Tensor) -> Tensor:
        return self.context.logits(images)
