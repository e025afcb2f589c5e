"""Schedule: what is the learning rate now? The constant and the exponential one."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from iblurry.components.lazy_torch import Tensor
from iblurry.parts.context import Update
from iblurry.parts.part import Part, state


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
