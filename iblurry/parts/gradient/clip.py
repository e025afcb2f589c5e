"""Clip: no gradient longer than a given length."""

from __future__ import annotations

from torch import nn

from iblurry.errors import InputError
from iblurry.parts.context import Drawn
from iblurry.parts.gradient.rule import GradientRule


class Clip(GradientRule):
    """g <- g * min(1, norm / |g|), over all parameters together.

    Pascanu et al., "On the difficulty of training recurrent neural networks", ICML 2013.
    """

    norm: float = 10.0  # as BiC and RM

    def __post_init__(self) -> None:
        if self.norm <= 0:
            raise InputError(f"Clip(norm={self.norm}): the norm is positive.")

    def adjust(self, drawn: Drawn) -> None:
        nn.utils.clip_grad_norm_(self.context.network.parameters(), self.norm)
