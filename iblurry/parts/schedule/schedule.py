"""Schedule: what is the learning rate now?"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from iblurry.errors import InputError
from iblurry.parts.context import Update
from iblurry.parts.part import Part


class Schedule(Part):
    """The learning rate as it goes along; lives on the host."""

    kind: ClassVar[str] = "schedule"

    initial_lr: float = 3e-4  # the rate it starts from; 3e-4 is the paper's with Adam

    def __post_init__(self) -> None:
        if not self.initial_lr > 0:
            raise InputError(f"{type(self).__name__}(initial_lr={self.initial_lr}): the learning rate is positive.")

    @property
    @abstractmethod
    def lr(self) -> float:
        """The rate of the next update."""

    @property
    def separate_head_lr(self) -> bool:
        """Whether the head may have another rate than the body."""
        return False

    @property
    def head_lr(self) -> float:
        """The rate of the next update for the head."""
        return self.lr

    @abstractmethod
    def advance(self, update: Update) -> None:
        """An update was taken."""
