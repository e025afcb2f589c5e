"""Schedules of a refit, which change from epoch to epoch: cosine cycles and milestones."""

from __future__ import annotations

import math
from abc import abstractmethod

from iblurry.errors import InputError
from iblurry.parts.context import Update
from iblurry.parts.part import state
from iblurry.parts.schedule.schedule import Schedule


class ByEpoch(Schedule):
    """Changes from epoch to epoch (in a refit; on a stream, from round to round), after a first one at a low rate."""

    initial_lr: float = 0.05  # GDumb's and RM's, with SGD
    warm: float = 0.1  # the first epoch's share of the learning rate

    epoch: int = state(lambda part: 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.warm <= 1:
            raise InputError(f"{type(self).__name__}(warm={self.warm}): the first epoch's share lies in (0, 1].")

    @abstractmethod
    def after(self, epoch: int) -> float:
        """The learning rate so many epochs after the first, warm one."""

    @property
    def lr(self) -> float:
        return self.after(self.epoch - 1) if self.epoch else self.initial_lr * self.warm

    def step(self, update: Update) -> None:
        self.epoch += update.last_of_round


class Cosine(ByEpoch):
    """Cosine annealing with warm restarts: floor + (initial_lr - floor) (1 + cos(pi t / T)) / 2, t epochs into a cycle.

    One warm epoch and the cycles 1, 2, 4, ..., 128 are 256 epochs.

    Parameters
    ----------
    initial_lr : float
        The learning rate at the start of each cycle.
    warm : float
        The first epoch's share of it.
    floor : float
        The learning rate at the end of a cycle; 5e-4 is RM's, 0 GDumb's.
    cycle : int
        Epochs T of the first cycle.
    growth : int
        Each cycle is so many times longer than the one before.

    Loshchilov and Hutter, "SGDR: Stochastic gradient descent with warm restarts", ICLR 2017.
    """

    floor: float = 5e-4
    cycle: int = 1
    growth: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.floor <= self.initial_lr:
            raise InputError(f"Cosine(floor={self.floor}): the floor lies between 0 and initial_lr, {self.initial_lr}.")
        if self.cycle < 1 or self.growth < 1:
            raise InputError(f"{self}: cycle and growth are at least 1.")

    def after(self, epoch: int) -> float:
        length = self.cycle
        while epoch >= length:
            epoch, length = epoch - length, length * self.growth
        return self.floor + (self.initial_lr - self.floor) * (1 + math.cos(math.pi * epoch / length)) / 2


class MultiStep(ByEpoch):
    """initial_lr * factor^k, with k the milestones passed.

    Parameters
    ----------
    initial_lr : float
        The learning rate after the first epoch.
    warm : float
        The first epoch's share of it.
    milestones : tuple of int
        Epochs after the first, warm one; RM's on ImageNet.
    factor : float
        In (0, 1].
    """

    milestones: tuple[int, ...] = (30, 60, 80, 90)
    factor: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.milestones = tuple(self.milestones)  # JSON has lists only
        if any(type(m) is not int or m < 1 for m in self.milestones) or sorted(set(self.milestones)) != [
            *self.milestones
        ]:
            raise InputError(f"MultiStep(milestones={self.milestones}): whole numbers from 1 that grow.")
        if not 0 < self.factor <= 1:
            raise InputError(f"MultiStep(factor={self.factor}): the factor lies in (0, 1].")

    def after(self, epoch: int) -> float:
        return self.initial_lr * self.factor ** sum(epoch >= milestone for milestone in self.milestones)
