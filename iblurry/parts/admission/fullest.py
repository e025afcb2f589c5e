"""Out of the fullest class: the rule CLIB, GDumb and RM share; they differ in the member that leaves."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from iblurry.memory import Sample
from iblurry.parts.admission.admission import Admission
from iblurry.parts.part import state


class Fullest(Admission):
    """The newcomer always enters; a member of the class with most rows, the newcomer counted, leaves.

    Ties go to the class met first. The class depends on labels alone, so the host knows it without asking the device.
    """

    counts: list[int] = state(lambda part: [0] * part.context.network.rows)  # rows held by each class

    @abstractmethod
    def pick(self, label: int) -> Tensor:
        """The row of that class which is given up, shape (1,)."""

    def choose_row(self, sample: Sample) -> Tensor:
        fullest = self.fullest(sample.label)
        row = self.pick(fullest)
        self.counts[fullest] -= 1
        return row

    def on_stored(self, row: Tensor, sample: Sample) -> None:
        self.counts[sample.label] += 1

    def fullest(self, newcomer: int) -> int:
        """The class that gives up a row for a newcomer of this class."""
        self.counts[newcomer] += 1
        fullest = self.counts.index(max(self.counts))
        self.counts[newcomer] -= 1
        if self.counts[fullest] == 0:  # every class holds one row and the newcomer's, met first, holds none
            fullest = self.counts.index(max(self.counts))
        return fullest
