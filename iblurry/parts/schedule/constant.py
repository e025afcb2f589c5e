"""Constant: one rate for ever."""

from __future__ import annotations

from iblurry.parts.context import Update
from iblurry.parts.schedule.schedule import Schedule


class Constant(Schedule):
    """The rate does not move."""

    @property
    def lr(self) -> float:
        return self.initial_lr

    def advance(self, update: Update) -> None:
        return
