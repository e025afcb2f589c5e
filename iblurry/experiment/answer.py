"""An answer on its way: counted on the device, read by the host when it is there."""

from __future__ import annotations

from torch import Tensor

from iblurry.engine.eager import AsyncRead
from iblurry.errors import DivergedError

Counts = tuple[tuple[int, ...], tuple[int, ...]]  # right answers and questions, class by class


class Answer:
    """Right answers of each class, and whether the network said numbers at all: one tensor, one way home.

    A GPU goes on meanwhile: it copies `told` to the host when it comes to it, and nobody waits but who calls `counts`.
    """

    def __init__(self, told: Tensor, totals: tuple[int, ...], *, at: int, rate: float) -> None:
        self.totals, self.at, self.rate = totals, at, rate
        self._told = AsyncRead(told)  # (classes + 1,) int64: right answers, then 1 where all logits were finite

    def ready(self) -> bool:
        """Whether `counts` would answer at once."""
        return self._told.ready()

    def counts(self) -> Counts:
        """Waits; DivergedError where the network is broken, whose answers are not worth counting."""
        *correct, sound = self._told.tolist()
        if not sound:
            raise DivergedError(
                f"The network's answers are no numbers any more at sample {self.at}; a lower learning rate "
                f"(schedule.initial_lr, now {self.rate:.3g}) usually helps."
            )
        return tuple(correct), self.totals
