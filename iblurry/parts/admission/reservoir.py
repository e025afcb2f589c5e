"""Reservoir: every sample of the stream is kept with the same probability."""

from __future__ import annotations

from torch import Tensor

from iblurry.memory import Sample
from iblurry.parts.admission.admission import Admission


class Reservoir(Admission):
    """After n samples each of them is in memory with probability capacity / n.

    Draw j uniformly from {0 .. n-1}; the newcomer takes row j where j < capacity and is turned away otherwise.

    Vitter, "Random sampling with a reservoir", ACM TOMS 1985.
    """

    def choose_row(self, sample: Sample) -> Tensor:
        memory = self.context.memory
        row = self.context.rng.integer("reservoir", step=memory.offered, high=memory.offered)
        return memory.row(min(row, memory.capacity))  # the row after the last is the discard row
