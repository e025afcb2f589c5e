"""A shadow network: a second set of weights that follows the learner's, as a teacher or for averaged answers."""

from __future__ import annotations

import torch
from torch import Tensor

from iblurry.network.network import Network


class ShadowNetwork:
    """A copy of a network's weights, batch-norm statistics and open head rows, changed only by the methods below.

    Everything happens in place on tensors, so it may be part of a captured step.

    Parameters
    ----------
    network : Network
        The network that is followed; the shadow starts as a copy of it.
    opens_rows : bool
        Whether a new class opens its head row here too, with the network's fresh weights; a teacher that must not know
        new classes says no.
    """

    def __init__(self, network: Network, *, opens_rows: bool = True) -> None:
        self.followed, self.opens_rows = network, opens_rows
        self.network = network.twin().eval().requires_grad_(False)
        values = network.state_dict()
        self._pairs = [(shadow, values[name]) for name, shadow in self.network.state_dict().items()]

    @torch.no_grad()
    def copy_(self) -> None:
        """Becomes what the network is now."""
        for shadow, value in self._pairs:
            shadow.copy_(value)

    @torch.no_grad()
    def lerp_(self, weight: float | Tensor) -> None:
        """Moves towards the network: `shadow += weight * (network - shadow)`, batch norm's statistics included.

        1 - weight is the decay of an exponential moving average.
        """
        for shadow, value in self._pairs:
            if shadow.is_floating_point():
                shadow.lerp_(value, weight)

    @torch.no_grad()
    def on_row_opened(self) -> None:
        """The network has opened a head row."""
        if self.opens_rows:
            new = self.followed.open & ~self.network.open
            self.network.head.weight.copy_(
                torch.where(new[:, None], self.followed.head.weight, self.network.head.weight)
            )
            self.network.head.bias.copy_(torch.where(new, self.followed.head.bias, self.network.head.bias))
            self.network.open.copy_(self.followed.open)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Answers to augmented training images (float), in eval mode; counted as distillation."""
        with self.network.meter.counting("distillation"):
            answers: Tensor = self.network(images)
        return answers

    def reset(self) -> None:
        """Starts again as a copy of the network."""
        self.copy_()

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, value in self.network.state_dict().items():
            value.copy_(state[name])
