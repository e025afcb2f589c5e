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
    """

    def __init__(self, network: Network) -> None:
        self.followed = network
        self.network = network.twin().eval()
        self.network.requires_grad_(False)

    @torch.no_grad()
    def copy_(self) -> None:
        """Becomes what the network is now."""
        self.load_state_dict(self.followed.state_dict())

    @torch.no_grad()
    def lerp_(self, weight: float | Tensor) -> None:
        """Moves towards the network: `shadow += weight * (network - shadow)`, batch norm's statistics included.

        A head row that opened since the last call starts as the network has it. 1 - weight is the decay of an
        exponential moving average.
        """
        self.open_new_rows()
        for shadow, value in self._pairs():
            if shadow.is_floating_point():
                shadow.lerp_(value, weight)

    @torch.no_grad()
    def open_new_rows(self) -> None:
        """Opens the head rows that the network has opened, with its weights."""
        new = self.followed.open & ~self.network.open
        for name, shadow in self.network.head.named_parameters():
            value = self.followed.head.get_parameter(name)
            shadow.copy_(torch.where(new.view(-1, *[1] * (value.dim() - 1)), value, shadow))
        self.network.open.copy_(self.followed.open)

    def reset(self) -> None:
        """Starts again as a copy of the network."""
        self.copy_()

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Answers to augmented training images (float), in eval mode; counted as distillation."""
        with self.network.meter.counting("distillation"):
            answers: Tensor = self.network(images)
        return answers

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, value in self.network.state_dict().items():
            value.copy_(state[name])

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        values = self.followed.state_dict()
        return [(shadow, values[name]) for name, shadow in self.network.state_dict().items()]
