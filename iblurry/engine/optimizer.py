"""Which optimizer takes the steps: a few numbers as data, and the torch optimizer made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from iblurry.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam as the paper uses it; the learning rate comes from the schedule.

    Fused: one call for all tensors, and no value of a tensor is read on the way, so a step can be captured.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1 and self.eps > 0 and self.weight_decay >= 0):
            raise InputError(f"{self} is no Adam: betas lie in [0, 1), eps is positive, weight_decay is not negative.")

    def build(self, groups: Sequence[Sequence[Tensor]]) -> torch.optim.Optimizer:
        """One set of calls per group: more than one only where they have rates of their own."""
        betas = (self.beta1, self.beta2)
        params = [{"params": group} for group in groups]
        return torch.optim.Adam(params, 0.0, betas, self.eps, self.weight_decay, fused=True)


def state_of(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """The optimizer's buffers by the position of their parameter: all that a checkpoint needs."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return {str(i): dict(optimizer.state[p]) for i, p in enumerate(parameters) if optimizer.state[p]}


def restore(optimizer: torch.optim.Optimizer, state: dict[str, dict[str, Tensor]]) -> None:
    """Puts back what `state_of` gave."""
    for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        optimizer.state[p] = {name: values.clone() for name, values in state.get(str(i), {}).items()}


def forget(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> None:
    """Starts these parameters' moments and step counters again, in place."""
    for p in parameters:
        for values in optimizer.state[p].values():
            values.zero_()
