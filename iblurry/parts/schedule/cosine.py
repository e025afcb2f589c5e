"""Cosine: the rate glides down and starts again, each time for twice as long."""

from __future__ import annotations

import math

from iblurry.errors import InputError
from iblurry.parts.schedule.by_epoch import ByEpoch


class Cosine(ByEpoch):
    """floor + (rate - floor) (1 + cos(pi t / T)) / 2, t epochs into a cycle of T; each cycle is `growth` times longer.

    One warm epoch and the cycles 1, 2, 4, ..., 128 are 256 epochs.

    Loshchilov and Hutter, "SGDR: Stochastic gradient descent with warm restarts", ICLR 2017.
    """

    floor: float = 5e-4  # RM's; 0 for GDumb
    cycle: int = 1  # epochs of the first cycle
    growth: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.floor <= self.initial_lr:
            raise InputError(f"Cosine(floor={self.floor}): the floor lies between 0 and the rate, {self.initial_lr}.")
        if self.cycle < 1 or self.growth < 1:
            raise InputError(f"{self}: cycle and growth are at least 1.")

    def after(self, epoch: int) -> float:
        length = self.cycle
        while epoch >= length:
            epoch, length = epoch - length, length * self.growth
        return self.floor + (self.initial_lr - self.floor) * (1 + math.cos(math.pi * epoch / length)) / 2
