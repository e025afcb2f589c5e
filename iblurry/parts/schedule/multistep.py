"""MultiStep: the rate falls at given epochs."""

from __future__ import annotations

from iblurry.errors import InputError
from iblurry.parts.schedule.by_epoch import ByEpoch


class MultiStep(ByEpoch):
    """rate * factor^k, with k the milestones passed, counted in epochs after the first, warm one."""

    milestones: tuple[int, ...] = (30, 60, 80, 90)  # RM's on ImageNet
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
