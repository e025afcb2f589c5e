"""Plain: the network itself answers."""

from __future__ import annotations

from torch import Tensor

from iblurry.parts.readout.readout import Readout


class Plain(Readout):
    """The network in eval mode, as it stands."""

    def logits(self, images: Tensor) -> Tensor:
        return self.context.logits(images)
