"""Shuffled: every row in turn, in an order shuffled anew when all have had theirs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from iblurry.errors import InputError
from iblurry.memory import Batch
from iblurry.parts.context import Drawn
from iblurry.parts.part import scratch
from iblurry.parts.rehearsal.rehearsal import Rehearsal


class Shuffled(Rehearsal):
    """Epochs over the memory in batches of `count`; the last batch of an epoch may be smaller."""

    count: int = 16

    epoch: int = scratch(lambda part: -1)  # whose order is at hand
    order: NDArray[np.int64] = scratch(lambda part: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"Shuffled(count={self.count}): at least 1 row; to rehearse none use Nothing().")

    @property
    def rows_per_update(self) -> int:
        return self.count

    def draw(self, purpose: str, step: int, size: int) -> Sequence[int]:
        epoch, batch = divmod(step, max(1, -(-size // self.count)))
        if self.epoch != epoch or len(self.order) != size:
            self.epoch, self.order = epoch, self.context.rng.permutation(purpose, epoch, size)
        rows: list[int] = self.order[batch * self.count : (batch + 1) * self.count].tolist()
        return rows

    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        return drawn.rows
