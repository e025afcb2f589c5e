"""Schedule: what is the learning rate now?"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from iblurry.errors import InputError
from iblurry.parts.part import Part
from iblurry.parts.workbench import Update


class Schedule(Part):
    """The learning rate as it goes along; lives on the host."""

    kind: ClassVar[str] = "schedule"

    rate: float = 3e-4  # the rate it starts from; 3e-4 is the paper's with Adam

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise InputError(f"{type(self).__name__}(rate={self.rate}): the learning rate is positive.")

    @property
    @abstractmethod
    def now(self) -> float:
        """The rate of the next update."""

    @property
    def parts_head(self) -> bool:
        """Whether the head may have another rate than the body."""
        return False

    @property
    def head_now(self) -> float:
        """The rate of the next update for the head."""
        return self.now

    @abstractmethod
    def advance(self, update: Update) -> None:
        """An update was taken."""
