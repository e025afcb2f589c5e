"""Admission: which row does this sample take? Those that need no more than the memory and its labels."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.errors import InputError
from iblurry.parts.memory import Sample
from iblurry.parts.part import Part, state


class Admission(Part):
    """Decides which row of a full memory a new sample takes; while there is room every sample is stored."""

    kind: ClassVar[str] = "admission"
    keeps_all: ClassVar[bool] = False  # needs a row for every sample of the stream, whatever the budget
    keeps_none: ClassVar[bool] = False  # needs no row: the memory has none, whatever the budget

    def on_offered(self, sample: Sample) -> None:
        """A sample is offered to the memory; it is not stored yet."""

    @abstractmethod
    def choose_row(self, sample: Sample) -> Tensor:
        """The row this sample takes in a full memory, shape (1,); `memory.discard` turns it away."""

    def admit(self, sample: Sample) -> Tensor:
        """Stores the sample in a free row or where `choose_row` says; the row, shape (1,)."""
        memory = self.context.memory
        row = self.choose_row(sample) if memory.full else memory.next_row()
        memory.write(row, sample)
        self.on_stored(row, sample)
        return row


class Reservoir(Admission):
    """Reservoir sampling: after n samples each of them is in memory with probability capacity / n.

    Draw j uniformly from {0 .. n-1}; the new sample takes row j if j < capacity and is rejected otherwise.

    Vitter, "Random sampling with a reservoir", ACM TOMS 1985.
    """

    def choose_row(self, sample: Sample) -> Tensor:
        memory = self.context.memory
        row = self.context.rng.integer("reservoir", step=memory.offered, high=memory.offered)
        return memory.row(min(row, memory.capacity))  # the row after the last is the discard row


class RingBuffer(Admission):
    """Keeps the last samples: a new one takes the row of the oldest."""

    def choose_row(self, sample: Sample) -> Tensor:
        return self.context.memory.written_at[:-1].argmin().view(1)


class Everything(Admission):
    """Keeps every sample: the memory has a row for each; for joint training, which knows no budget."""

    keeps_all: ClassVar[bool] = True

    def choose_row(self, sample: Sample) -> Tensor:
        raise InputError(
            f"Everything keeps every sample, but all {self.context.memory.capacity} rows of the memory are taken; "
            "build the learner with a `memory` as long as its stream."
        )


class Discard(Admission):
    """Keeps no sample: the memory has no rows; for methods that learn each sample when it comes, and never again."""

    keeps_none: ClassVar[bool] = True

    def choose_row(self, sample: Sample) -> Tensor:
        return self.context.memory.discard


class LargestClass(Admission):
    """The new sample always enters; a member of the class with most rows, the new sample counted, leaves.

    CLIB, GDumb and RM share this rule.
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
