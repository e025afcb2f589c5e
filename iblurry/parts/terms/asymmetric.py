"""AsymmetricCrossEntropy: streamed samples compete among their own classes only (ER-ACE)."""

from __future__ import annotations

from typing import ClassVar

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.network import FLOOR
from iblurry.parts.context import Forward
from iblurry.parts.terms.term import Term, cross_entropy


class AsymmetricCrossEntropy(Term):
    """Cross-entropy of the streamed samples over the classes among them, plus that of the memory rows over all classes.

    Parameters
    ----------
    stream_weight, memory_weight : float
        Of the two means; the paper adds them as they are.

    Notes
    -----
    New samples cannot push down the logits of classes that are not among them, so old ones are not forgotten at once.

    Differs: with CutMix the classes mixed into the streamed samples count as being among them.

    Caccia et al., "New insights on reducing abrupt representation change in online continual learning", ICLR 2022.
    """

    ranges: ClassVar[dict[str, str]] = {"stream_weight": "[0, inf)", "memory_weight": "[0, inf)"}

    stream_weight: float = 1.0
    memory_weight: float = 1.0

    def loss(self, forward: Forward) -> Tensor:
        count, logits = forward.streamed, forward.logits
        loss = logits.new_zeros(())
        if count:
            absent = torch.ones_like(logits[0], dtype=torch.bool).index_fill_(0, forward.labels[:count], False)
            if forward.partners is not None:
                absent.index_fill_(0, forward.partners[:count], False)
            own = logits[:count].masked_fill(absent, FLOOR)
            loss = loss + self.stream_weight * cross_entropy(forward, own, slice(count))
        if count < len(logits):
            loss = loss + self.memory_weight * cross_entropy(forward, logits[count:], slice(count, None))
        return loss
