"""Project: no step may raise the loss of remembered samples, to first order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from iblurry.errors import InputError
from iblurry.parts.context import Drawn
from iblurry.parts.cost import Cost, Load, Passes
from iblurry.parts.gradient.rule import GradientRule


class Project(GradientRule):
    """A-GEM: with r the gradient on `count` memory rows, g <- g - min(0, g.r) / (r.r) * r, over all parameters.

    Differs: no task identities; the constraint holds from the first memory content on. The rows are varied, not mixed.

    Chaudhry et al., "Efficient lifelong learning with A-GEM", ICLR 2019.
    """

    needs_augment_params: ClassVar[bool] = True

    count: int = 240

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"Project(count={self.count}): at least 1 row to refer to.")

    @property
    def rows_per_update(self) -> int:
        return self.count

    def cost(self, load: Load) -> Cost:
        rows = min(self.count, load.capacity)
        return Cost(update=Passes(rows, rows))

    def adjust(self, drawn: Drawn) -> None:
        if not len(drawn.rows):  # nothing stored yet, as the host knows
            return
        context = self.context
        assert drawn.augment_params is not None
        batch = context.memory.read(drawn.rows)
        reference = context.gradient(context.pipeline.vary(batch.images, drawn.augment_params), batch.labels)
        gradients = [p.grad for p in context.network.parameters() if p.grad is not None]
        project(gradients, reference)


def project(gradients: Sequence[Tensor], reference: Sequence[Tensor]) -> None:
    """Takes from the gradients, in place, what points against the reference."""
    with torch.no_grad():
        dot = torch.stack([(g * r).sum() for g, r in zip(gradients, reference, strict=True)]).sum()
        length = torch.stack([r.square().sum() for r in reference]).sum()
        share = dot.clamp(max=0) / length.clamp(min=torch.finfo(length.dtype).tiny)
        for g, r in zip(gradients, reference, strict=True):
            g -= share * r
