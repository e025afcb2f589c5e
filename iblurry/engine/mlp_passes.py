"""The training passes of an MLP without autograd and modules, which take longer than the matrix products."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iblurry.network.bodies import MLP
from iblurry.network.network import Network


class MLPPasses:
    """Forward and backward by the kernels that autograd calls, so to the same bits.

    Parameters
    ----------
    network : Network
        One that `fits`.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.linears = [m for m in network.modules() if isinstance(m, nn.Linear)]  # the head is the last
        self._inputs: list[Tensor] = []  # of each, in the forward pass

    @staticmethod
    def fits(network: Network) -> bool:
        """Whether it is an MLP on the CPU of which everything is trained."""
        on_cpu = network.open.device.type == "cpu" and network.precision is None
        return type(network.body) is MLP and on_cpu and all(p.requires_grad for p in network.parameters())

    @torch.no_grad()
    def forward_both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """What `Network.forward_both` returns, without gradients."""
        values, self._inputs = images.flatten(1), []
        for linear in self.linears[:-1]:
            self._inputs.append(values)
            values = F.linear(values, linear.weight, linear.bias).relu_()
        self._inputs.append(values)
        head = self.linears[-1]
        return values, self.network.counted(F.linear(values, head.weight, head.bias))

    @torch.no_grad()
    def backward(self, gradient: Tensor) -> None:
        """Sets the gradient of each weight, given that of the loss for the logits, (B, rows)."""
        gradient = gradient.masked_fill(~self.network.open, 0.0)
        for at in range(len(self.linears) - 1, -1, -1):
            linear, values = self.linears[at], self._inputs.pop()
            linear.weight.grad, linear.bias.grad = gradient.t().mm(values), gradient.sum(0)
            if at:
                gradient = torch.ops.aten.threshold_backward.default(gradient.mm(linear.weight), values, 0)
