"""Rehearsal: which memory rows join this batch? Those that need no more than random numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from iblurry.components.lazy_torch import Tensor
from iblurry.parts.context import Drawn
from iblurry.parts.memory import Batch
from iblurry.parts.part import Part, scratch


class Rehearsal(Part):
    """Chooses `count` memory rows to train on, out of the `rows_per_update` rows that the host drew for it."""

    kind: ClassVar[str] = "rehearsal"
    count: ClassVar[int] = 0  # rows that join a batch; a field in most subclasses

    @property
    def rows_per_update(self) -> int:
        return self.count

    def joins(self, drawn: int) -> int:
        """How many of so many drawn rows join the batch."""
        return min(self.count, drawn)

    @abstractmethod
    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        """The rows that join the streamed samples.

        Parameters
        ----------
        stream : Batch
            The streamed samples of this update.
        drawn : Drawn
            Memory rows drawn at random, and the random crops and flips of this update's batch.
        """


class Nothing(Rehearsal):
    """No memory row joins the batch: training on the stream alone."""

    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        return drawn.rows  # empty: it asked for none


class Uniform(Rehearsal):
    """Rows drawn at random for each update, all different; all of them while there are fewer.

    Parameters
    ----------
    count : int
        Rows that join a batch; half of the paper's batch of 16.

    Chaudhry et al., "On tiny episodic memories in continual learning", 2019.
    """

    ranges: ClassVar[dict[str, str]] = {"count": "[1, inf)"}

    count: int = 8  # type: ignore[misc]

    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        return drawn.rows


class Shuffled(Rehearsal):
    """Epochs over the memory, shuffled for each; the last batch of an epoch may be smaller.

    Parameters
    ----------
    count : int
        Rows in a batch.
    """

    ranges: ClassVar[dict[str, str]] = {"count": "[1, inf)"}

    count: int = 16  # type: ignore[misc]

    epoch: int = scratch(lambda part: -1)  # the epoch of `order`
    order: NDArray[np.int64] = scratch(lambda part: np.empty(0, dtype=np.int64))

    def draw_rows(self, purpose: str, step: int, size: int) -> Sequence[int]:
        epoch, batch = divmod(step, max(1, -(-size // self.count)))
        if self.epoch != epoch or len(self.order) != size:
            self.epoch, self.order = epoch, self.context.rng.permutation(purpose, epoch, size)
        rows: list[int] = self.order[batch * self.count : (batch + 1) * self.count].tolist()
        return rows

    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        return drawn.rows
