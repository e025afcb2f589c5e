"""Exponential: the rate decays with every update and starts again with every new class."""

from __future__ import annotations

from typing import Literal

from iblurry.errors import InputError
from iblurry.parts.context import Update
from iblurry.parts.part import state
from iblurry.parts.schedule.schedule import Schedule


class Exponential(Schedule):
    """rate * gamma^k, with k the updates since the last new class ("exp with reset")."""

    gamma: float = 0.9999  # 0.99995 on TinyImageNet and ImageNet
    restart_on_class: bool = True
    per: Literal["update", "round"] = "update"  # released CLIB counts training calls, which may hold several updates

    decays: int = state(lambda part: 0)  # k

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.gamma <= 1:
            raise InputError(f"Exponential(gamma={self.gamma}): gamma lies in (0, 1].")
        if self.per not in ("update", "round"):
            raise InputError(f"Exponential(per={self.per!r}): per is 'update' or 'round'.")

    @property
    def lr(self) -> float:
        return self.initial_lr * self.gamma**self.decays

    def on_class(self, label: int) -> None:
        if self.restart_on_class:
            self.decays = 0

    def advance(self, update: Update) -> None:
        if self.per == "update" or update.last_of_round:
            self.decays += 1
