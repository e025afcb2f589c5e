"""Schedules of a refit, which change from epoch to epoch: cosine cycles and milestones."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

from iblurry.errors import InputError, check_fields
from iblurry.parts.context import Update
from iblurry.parts.part import state
from iblurry.parts.schedule.schedule import Schedule


class ByEpoch(Schedule):
    """Changes from epoch to epoch (in a refit; on a stream, from round to round), after a first one at a low rate."""

    ranges: ClassVar[dict[str, str]] = {"warm": "(0, 1]"}

    initial_lr: float = 0.05  # GDumb's and RM's, with SGD
    warm: float = 0.1  # the first epoch's share of the learning rate

    epoch: int = state(lambda part: 0)

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

    ranges: ClassVar[dict[str, str]] = {"cycle": "[1, inf)", "growth": "[1, inf)"}

    floor: float = 5e-4
    cycle: int = 1
    growth: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, {"floor": f"[0, {self.initial_lr}]"})

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

    ranges: ClassVar[dict[str, str]] = {"factor": "(0, 1]"}

    milestones: tuple[int, ...] = (30, 60, 80, 90)
    factor: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.milestones = tuple(self.milestones)  # JSON has lists only
        legal = all(type(m) is int and m >= 1 for m in self.milestones)
        if not legal or sorted(set(self.milestones)) != [*self.milestones]:
            raise InputError(f"MultiStep(milestones={self.milestones}): whole numbers from 1 that grow.")

    def after(self, epoch: int) -> float:
        return self.initial_lr * self.factor ** sum(epoch >= milestone for milestone in self.milestones)
