"""Schedule: what is the learning rate now? Constant, exponential, by trust in a teacher, cosine cycles, milestones."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Literal

from iblurry.components.lazy_torch import Tensor
from iblurry.errors import InputError, check_fields
from iblurry.parts.context import TRUST, SharedTensor, Update
from iblurry.parts.part import Part, scratch, state


class Schedule(Part):
    """The learning rate over time; runs on the host.

    Parameters
    ----------
    initial_lr : float
        The learning rate at the start; 3e-4 is the paper's with Adam.
    """

    ranges: ClassVar[dict[str, str]] = {"initial_lr": "(0, inf)"}
    kind: ClassVar[str] = "schedule"

    initial_lr: float = 3e-4

    @property
    @abstractmethod
    def lr(self) -> float:
        """The learning rate of the next update."""

    @property
    def separate_head_lr(self) -> bool:
        """Whether the head may have another learning rate than the body."""
        return False

    @property
    def head_lr(self) -> float:
        """The learning rate of the next update for the head, where it is separate."""
        return self.lr

    @property
    def lr_scale(self) -> Tensor | None:
        """A factor of all learning rates that lives on the device, shape (); None: 1."""
        return None

    @abstractmethod
    def step(self, update: Update) -> None:
        """An update was taken."""


class Constant(Schedule):
    """The learning rate does not change.

    Parameters
    ----------
    initial_lr : float
        The learning rate.
    """

    @property
    def lr(self) -> float:
        return self.initial_lr

    def step(self, update: Update) -> None:
        return


class ByConfidence(Constant):
    """initial_lr * (1 - w), with w how far `ScheduledPrior` trusts its teacher; the host never reads it.

    Parameters
    ----------
    initial_lr : float
        The learning rate where nothing is trusted.

    Koh et al., "Online boundary-free continual learning by scheduled data prior", ICLR 2023.
    """

    trust: SharedTensor = scratch(lambda part: part.context.scalar(TRUST))

    @property
    def lr_scale(self) -> Tensor | None:
        return 1 - self.trust.value


class Exponential(Schedule):
    """initial_lr * gamma^k, with k the updates, rounds or samples since the last new class ("exp with reset").

    Parameters
    ----------
    initial_lr : float
        The learning rate at the start and after each new class.
    gamma : float
        Decay for each update, in (0, 1]; 0.99995 on TinyImageNet and ImageNet.
    restart_on_class : bool
        Whether a new class sets k to 0.
    per : {"update", "round", "sample"}
        What k counts; released CLIB counts training calls (rounds), which may hold several updates.
    """

    ranges: ClassVar[dict[str, str]] = {"gamma": "(0, 1]"}

    gamma: float = 0.9999
    restart_on_class: bool = True
    per: Literal["update", "round", "sample"] = "update"

    decays: int = state(lambda part: 0)  # k
    seen: int = state(lambda part: 0)  # samples at the last step

    @property
    def lr(self) -> float:
        return self.initial_lr * self.gamma**self.decays

    def on_class(self, label: int) -> None:
        if self.restart_on_class:
            self.decays, self.seen = 0, self.context.seen

    def step(self, update: Update) -> None:
        if self.per == "sample":
            self.decays += self.context.seen - self.seen
            self.seen = self.context.seen
        elif self.per == "update" or update.last_of_round:
            self.decays += 1


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
