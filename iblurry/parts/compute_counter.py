"""The counter: images that went through a network so far, by what they were for; counted by the host alone."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from iblurry.parts.cost import Passes

PURPOSES = ("training", "losses", "distillation", "parts", "queries")


class ComputeCounter:
    """Whole images forwards and backwards, and optimizer steps.

    training: batches, those of refits among them; losses: the loss of each memory row that holds a sample;
    distillation: a teacher's answers; parts: what parts send on top of that (candidates, reference gradients); queries:
    questions, and a readout's own work for them.

    >>> counter = ComputeCounter()
    >>> counter.add("training", Passes(16, 16))
    >>> counter.forward["training"], counter.backward["queries"]
    (16, 0)
    """

    def __init__(self) -> None:
        self.updates = 0
        self.forward = dict.fromkeys(PURPOSES, 0)
        self.backward = dict.fromkeys(PURPOSES, 0)

    def add(self, purpose: str, passes: Passes) -> None:
        self.forward[purpose] += round(passes.forward)
        self.backward[purpose] += round(passes.backward)

    def include(self, other: ComputeCounter) -> None:
        """All that the other counted."""
        self.updates += other.updates
        for purpose in PURPOSES:
            self.forward[purpose] += other.forward[purpose]
            self.backward[purpose] += other.backward[purpose]

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "forward": dict(self.forward), "backward": dict(self.backward)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What was saved before there was a purpose has none of it."""
        self.updates = state["updates"]
        for mine, saved in ((self.forward, state["forward"]), (self.backward, state["backward"])):
            mine.update({purpose: saved.get(purpose, 0) for purpose in PURPOSES})


class Queries(ComputeCounter):
    """What answers cost. Nobody learns from being asked, so it is saved beside the learner's state, not in it.

    A readout prepares itself once for a moment of the stream; after a resume it does so again, which is not counted
    again: what a run has spent does not depend on how often it was interrupted.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counted: dict[str, Hashable] = {}  # by kind of work: the moment it was last done for

    def is_new(self, work: str, moment: tuple[int, ...]) -> bool:
        """Whether this work has not been counted for this moment yet; from now on it has."""
        new = self._counted.get(work) != moment
        self._counted[work] = moment
        return new

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"counted": dict(self._counted)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._counted = dict(state["counted"])
