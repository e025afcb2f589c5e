"""Term: what is added to the loss? The cross-entropy, aware of mixed images."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from iblurry.parts.context import Forward
from iblurry.parts.part import Part


class Term(Part):
    """One summand of the training loss."""

    kind: ClassVar[str] = "term"

    @abstractmethod
    def loss(self, forward: Forward) -> Tensor:
        """A scalar."""


class CrossEntropy(Term):
    """lam * CE(own label) + (1 - lam) * CE(partner's label), the mean over the batch.

    Yun et al., "CutMix", ICCV 2019.
    """

    def loss(self, forward: Forward) -> Tensor:
        return cross_entropy(forward, forward.logits)


def cross_entropy(forward: Forward, logits: Tensor) -> Tensor:
    """Of these logits for the batch's labels, mixed as its images are; the batch mean."""
    own = F.cross_entropy(logits, forward.labels)
    if forward.partners is None:
        return own
    return torch.lerp(F.cross_entropy(logits, forward.partners), own, forward.lam[0])
