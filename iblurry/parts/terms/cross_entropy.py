"""CrossEntropy: the classification loss, aware of mixed images."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from iblurry.parts.terms.term import Term
from iblurry.parts.workbench import Forward


class CrossEntropy(Term):
    """lam * CE(own label) + (1 - lam) * CE(partner's label), the mean over the batch.

    Yun et al., "CutMix", ICCV 2019.
    """

    def loss(self, forward: Forward) -> Tensor:
        log_p = F.log_softmax(forward.logits, dim=1)  # once for both labels
        own, partner = F.nll_loss(log_p, forward.labels), F.nll_loss(log_p, forward.partners)
        return (forward.lam * own + (1 - forward.lam) * partner).sum()
