"""AdjustedCrossEntropy: the cross-entropy of logits shifted by how often each class was trained on lately."""

from __future__ import annotations

from typing import ClassVar

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.parts.context import Forward
from iblurry.parts.part import state
from iblurry.parts.terms.term import Term, cross_entropy


class AdjustedCrossEntropy(Term):
    """Cross-entropy of (logits + log q), q the share of each class in recent batches; answers use the plain logits.

    Parameters
    ----------
    decay : float
        Of the running mean of the batches' label histograms, at each update.
    least : float
        A class is never counted as rarer than this.

    Notes
    -----
    q <- decay * q + (1 - decay) * histogram of the batch's own labels, before it is used. A class that is rare in the
    batches must score higher in training to win, so its plain logits are not pushed down by the others.

    Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, with a running prior.
    """

    ranges: ClassVar[dict[str, str]] = {"decay": "[0, 1)", "least": "(0, 1)"}
    stores: ClassVar[str] = "the share of each class in recent batches"

    decay: float = 0.99
    least: float = 1e-4

    prior: Tensor = state(lambda part: torch.zeros(part.context.network.rows, device=part.context.device))  # q, (rows,)

    def loss(self, forward: Forward) -> Tensor:
        with torch.no_grad():
            counts = torch.zeros_like(self.prior).index_add_(0, forward.labels, torch.ones_like(forward.labels).float())
            self.prior.lerp_(counts / len(forward.labels), 1 - self.decay)
        return cross_entropy(forward, forward.logits + self.prior.clamp(min=self.least).log())
