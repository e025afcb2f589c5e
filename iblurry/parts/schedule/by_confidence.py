"""ByConfidence: the more a teacher is trusted, the slower the network learns (SDP)."""

from __future__ import annotations

from iblurry.components.lazy_torch import Tensor
from iblurry.parts.context import TRUST, SharedScalar
from iblurry.parts.part import scratch
from iblurry.parts.schedule.schedule import Constant


class ByConfidence(Constant):
    """initial_lr * (1 - w), with w how far `ScheduledPrior` trusts its teacher; the host never reads it.

    Parameters
    ----------
    initial_lr : float
        The learning rate where nothing is trusted.

    Koh et al., "Online boundary-free continual learning by scheduled data prior", ICLR 2023.
    """

    trust: SharedScalar = scratch(lambda part: part.context.scalar(TRUST))

    @property
    def lr_scale(self) -> Tensor | None:
        return 1 - self.trust.value
