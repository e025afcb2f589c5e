"""Readout: how is a query answered? Plain: by the network as it is."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from iblurry.components.lazy_torch import Tensor
from iblurry.network.shadow import ShadowNetwork
from iblurry.parts.memory import Sample
from iblurry.parts.part import Part, declared


class Readout(Part):
    """Turns images into logits. It may change its own state when asked, never the learner's."""

    kind: ClassVar[str] = "readout"
    refits: ClassVar[bool] = False  # trains on the memory, as `Method.refit` says
    learns: ClassVar[bool] = False  # from each sample by itself, so that no update is needed
    reads_network: ClassVar[bool] = True  # answers change with the network's weights, besides what `prepared` holds

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

    @property
    def prepare_every(self) -> int:
        """Samples between two calls of `prepare` where each is tested before it is learnt; 1 unless it is slow."""
        return 1

    def prepared(self) -> dict[str, Tensor]:
        """What `logits` reads besides the network, by reference: a readout of another process answers by copies of it.

        Unless overridden, all tensors and shadow networks that the part declares; numbers and lists are not among them.
        """
        held: dict[str, Tensor] = {}
        for name in (*declared(type(self), "state"), *declared(type(self), "scratch")):
            value = getattr(self, name)
            values = {"": value} if isinstance(value, Tensor) else value
            if isinstance(value, ShadowNetwork):
                values = value.state_dict()
            for key, inner in values.items() if isinstance(values, dict) else ():
                if isinstance(inner, Tensor):
                    held[f"{name} {key}"] = inner
        return held

    def answers_with(self) -> list[Tensor]:
        """All that answers depend on, by reference."""
        network = self.context.network.state_dict().values() if self.reads_network else ()
        return [*network, *self.prepared().values()]

    @abstractmethod
    def logits(self, images: Tensor) -> Tensor:
        """The answer to plain images (uint8), (B, rows)."""


class Plain(Readout):
    """The network in eval mode, as it is."""

    def logits(self, images: Tensor) -> Tensor:
        return self.context.logits(images)
