"""By epoch: what the schedules of a refit share."""

from __future__ import annotations

from abc import abstractmethod

from iblurry.errors import InputError
from iblurry.parts.context import Update
from iblurry.parts.part import state
from iblurry.parts.schedule.schedule import Schedule


class ByEpoch(Schedule):
    """Moves from epoch to epoch (in a refit; on a stream, from round to round), after a first one at a low rate."""

    initial_lr: float = 0.05  # GDumb's and RM's, with SGD
    warm: float = 0.1  # the first epoch's share of the rate

    epoch: int = state(lambda part: 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.warm <= 1:
            raise InputError(f"{type(self).__name__}(warm={self.warm}): the first epoch's share lies in (0, 1].")

    @abstractmethod
    def after(self, epoch: int) -> float:
        """The rate so many epochs after the first, warm one."""

    @property
    def lr(self) -> float:
        return self.after(self.epoch - 1) if self.epoch else self.initial_lr * self.warm

    def advance(self, update: Update) -> None:
        self.epoch += update.last_of_round
