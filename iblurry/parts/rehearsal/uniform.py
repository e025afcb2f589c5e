"""Uniform: rows drawn at random, each update anew."""

from __future__ import annotations

from torch import Tensor

from iblurry.errors import InputError
from iblurry.memory import Batch
from iblurry.parts.context import Drawn
from iblurry.parts.rehearsal.rehearsal import Rehearsal


class Uniform(Rehearsal):
    """`count` different rows, or all of them while there are fewer.

    Chaudhry et al., "On tiny episodic memories in continual learning", 2019.
    """

    count: int = 8  # half of the paper's batch of 16

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"Uniform(count={self.count}): at least 1 row; to rehearse none use Nothing().")

    @property
    def rows_per_update(self) -> int:
        return self.count

    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        return drawn.rows
