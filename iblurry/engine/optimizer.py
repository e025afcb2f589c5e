"""Optimizers as data: a few hyper-parameters, and the torch optimizer built from them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from iblurry.component import Component
from iblurry.errors import InputError


class Optimizer(Component):
    """What takes the steps: hyper-parameters as fields, and `build`, which makes the torch optimizer."""

    kind: ClassVar[str] = "optimizer"

    @property
    @abstractmethod
    def moments(self) -> int:
        """Numbers kept for each weight."""

    @abstractmethod
    def build(self, groups: Sequence[Sequence[Tensor]]) -> torch.optim.Optimizer:
        """The optimizer of these parameters, a param group per sequence; the schedule sets the learning rates."""


class Adam(Optimizer):
    """Adam as the paper uses it; the learning rate comes from the schedule.

    Fused: one call for all tensors, and no value of a tensor is read by the host, so a step can be captured.

    Parameters
    ----------
    beta1, beta2 : float, default 0.9 and 0.999
        Decay of the mean of gradients and of squared gradients, in [0, 1).
    eps : float, default 1e-8
        Added to the denominator.
    weight_decay : float, default 0
        L2 penalty.
    """

    ranges: ClassVar = {"beta1": "[0, 1)", "beta2": "[0, 1)", "eps": "(0, inf)", "weight_decay": "[0, inf)"}

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    @property
    def moments(self) -> int:
        return 2

    def build(self, groups: Sequence[Sequence[Tensor]]) -> torch.optim.Optimizer:
        """One parameter group per sequence: several only where learning rates differ."""
        betas = (self.beta1, self.beta2)
        on_gpu = groups[0][0].is_cuda
        return torch.optim.Adam(
            _param_groups(groups), 0.0, betas, self.eps, self.weight_decay, fused=True, capturable=on_gpu
        )


class SGD(Optimizer):
    """Gradient descent with Nesterov's momentum, as GDumb and RM use it; the learning rate comes from the schedule.

    Parameters
    ----------
    momentum : float, default 0.9
        In [0, 1).
    nesterov : bool, default True
        Needs a momentum above 0.
    weight_decay : float, default 1e-4
        L2 penalty.
    """

    ranges: ClassVar = {"momentum": "[0, 1)", "weight_decay": "[0, inf)"}

    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise InputError(f"{self}: Nesterov's momentum needs a momentum above 0, or nesterov=False.")

    @property
    def moments(self) -> int:
        return 1 if self.momentum else 0

    def build(self, groups: Sequence[Sequence[Tensor]]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            _param_groups(groups),
            0.0,
            self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            fused=True,
        )


def _param_groups(groups: Sequence[Sequence[Tensor]]) -> list[dict[str, Any]]:
    """Groups with a learning rate each; on a GPU it is a tensor, so that a captured step reads what was set last."""
    return [
        {"params": group, "lr": torch.zeros((), device=group[0].device) if group[0].is_cuda else 0.0}
        for group in groups
    ]


def set_lr(group: dict[str, Any], rate: float) -> None:
    """The learning rate of the next step."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def state_of(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """The optimizer's buffers by the position of their parameter: all that a checkpoint needs."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    found = {
        str(i): {name: v for name, v in optimizer.state[p].items() if v is not None} for i, p in enumerate(parameters)
    }
    return {place: buffers for place, buffers in found.items() if buffers}


def restore(optimizer: torch.optim.Optimizer, state: dict[str, dict[str, Tensor]]) -> None:
    """Loads what `state_of` gave; existing buffers are overwritten in place, as captured steps know their address."""
    for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        held, saved = optimizer.state[p], state.get(str(i))
        if saved is None:  # it had taken no step yet
            reset_moments(optimizer, [p])
            continue
        for name, values in saved.items():
            if held.get(name) is not None and held[name].shape == values.shape:
                held[name].copy_(values)
            else:
                held[name] = _like_parameter(p, values)


def _like_parameter(p: Tensor, values: Tensor) -> Tensor:
    """The values on the parameter's device and in its memory layout."""
    buffer = (
        torch.empty_like(p, dtype=values.dtype)
        if values.shape == p.shape
        else torch.empty_like(values, device=p.device)
    )
    return buffer.copy_(values)


def reset_moments(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> None:
    """Resets these parameters' moments and step counters in place; the next step is that of a new optimizer.

    A new SGD takes the first gradient g as it is; -0.0 + g is g to the last bit, 0.0 + g is not where g is -0.0.
    """
    for p in parameters:
        for name, values in optimizer.state[p].items():
            if values is not None:  # SGD without momentum has a name but no buffer
                values.fill_(-0.0 if name == "momentum_buffer" else 0.0)
