"""Constant: one rate for ever."""

from __future__ import annotations

from iblurry.parts.schedule.schedule import Schedule
from iblurry.parts.workbench import Update


class Constant(Schedule):
    """The rate does not move."""

    @property
    def now(self) -> float:
        return self.rate

    def advance(self, update: Update) -> None:
        return
