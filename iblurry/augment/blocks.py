"""What blocks of dice mean, worked out once per block of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from iblurry.rng import Rng

T = TypeVar("T")
KEPT = 16  # blocks, each of one purpose and one batch size: a learner alternates between a few


class Blocks(Generic[T]):
    """Asks `make(uniforms, n)` what a block of uniforms means for batches of n images, step by step."""

    def __init__(self, make: Callable[[NDArray[np.float64], int], list[T]]) -> None:
        self._make = make
        self._kept: dict[tuple[str, int], tuple[NDArray[np.float64], list[T]]] = {}

    def at(self, rng: Rng, purpose: str, step: int, *, n: int, uniforms: int) -> T:
        """What so many uniforms of this purpose mean at this step for n images."""
        block, row = rng.block(purpose, step, uniforms)
        kept = self._kept.get((purpose, n))
        if kept is None or kept[0] is not block:
            self._kept.pop((purpose, n), None)
            if len(self._kept) == KEPT:
                del self._kept[next(iter(self._kept))]  # the oldest: batch sizes that a growing memory has outgrown
            kept = self._kept[purpose, n] = block, self._make(block, n)
        return kept[1][row]
