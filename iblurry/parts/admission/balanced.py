"""Class balance: a member of the largest class leaves. The rule CLIB, GDumb and RM share."""

from __future__ import annotations

from abc import abstractmethod

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.parts.admission.admission import Admission
from iblurry.parts.memory import Sample
from iblurry.parts.part import state


class LargestClass(Admission):
    """The new sample always enters; a member of the class with most rows, the new sample counted, leaves.

    Ties go to the class met first. The class depends on labels alone, so the host knows it without reading a tensor.
    """

    counts: list[int] = state(lambda part: [0] * part.context.network.rows)  # rows held by each class

    @abstractmethod
    def pick(self, label: int) -> Tensor:
        """The row of that class which is overwritten, shape (1,)."""

    def choose_row(self, sample: Sample) -> Tensor:
        largest = self.largest(sample.label)
        row = self.pick(largest)
        self.counts[largest] -= 1
        return row

    def on_stored(self, row: Tensor, sample: Sample) -> None:
        self.counts[sample.label] += 1

    def on_amended(self) -> None:
        memory = self.context.memory
        self.counts = torch.bincount(memory.labels[: memory.size], minlength=len(self.counts)).tolist()

    def largest(self, new: int) -> int:
        """The class that gives up a row for a new sample of class `new`."""
        counts = self.counts[: self.context.network.known]  # of a head's thousand rows few may be taken
        counts[new] += 1
        largest = counts.index(max(counts))
        if self.counts[largest] == 0:  # every class holds one row and the new sample's, met first, holds none
            largest = self.counts.index(max(self.counts))
        return largest


class Balanced(LargestClass):
    """Class balance without any notion of a better or worse sample: a random member of the largest class leaves.

    Prabhu et al., "GDumb", ECCV 2020 (the greedy balancing sampler).
    """

    def pick(self, label: int) -> Tensor:
        memory = self.context.memory
        nth = self.context.rng.integer("balanced", step=memory.offered, high=self.counts[label])
        return (memory.members(label).cumsum(0) > nth).to(torch.uint8).argmax(0, keepdim=True)
