"""Balanced: the fullest class gives up a member at random."""

from __future__ import annotations

import torch
from torch import Tensor

from iblurry.parts.admission.fullest import Fullest


class Balanced(Fullest):
    """Class balance without any notion of a better or worse sample.

    Prabhu et al., "GDumb", ECCV 2020 (the greedy balancing sampler).
    """

    def pick(self, label: int) -> Tensor:
        memory = self.context.memory
        nth = self.context.rng.integer("balanced", step=memory.offered, high=self.counts[label])
        return (memory.members(label).cumsum(0) > nth).to(torch.uint8).argmax(0, keepdim=True)
