"""Adam, AdamW and SGD of torch for the CPU, their fused kernels called directly: same weights, same state, less time.

Around a step of a small network torch spends more time than in it, and its first use imports torch._dynamo: 2 s, 70 MB.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor


class _OnCPU(torch.optim.Optimizer):
    """What the three leave out: the profiler's record of a step, hooks, and closures."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)  # without torch._dynamo

    def _patch_step_function(self) -> None:
        """Leaves `step` as it is."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """No parameter has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None


class CPUAdam(_OnCPU, torch.optim.Adam):
    """torch.optim.Adam(fused=True) of weights on the CPU."""

    kernel: ClassVar[Callable[..., None]] = torch._fused_adam_

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        each: Any = torch
        for group in self.param_groups:
            found: list[list[Tensor]] = [[], [], [], [], [], []]  # weights, gradients, means, squares, -, steps
            self._init_group(group, *found)  # type: ignore[no-untyped-call]
            if found[0]:
                each._foreach_add_(found[-1], 1)
                beta1, beta2 = group["betas"]
                numbers = {name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
                type(self).kernel(*found, beta1=beta1, beta2=beta2, **numbers)


class CPUAdamW(CPUAdam):
    """torch.optim.AdamW(fused=True) of weights on the CPU."""

    kernel: ClassVar[Callable[..., None]] = torch._fused_adamw_


class CPUSGD(_OnCPU, torch.optim.SGD):
    """torch.optim.SGD(fused=True) of weights on the CPU, whose momentum has its buffers from the start."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        each: Any = torch
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            momenta = [self.state[p]["momentum_buffer"] for p in weights] if group["momentum"] else []
            numbers = {n: group[n] for n in ("lr", "weight_decay", "momentum", "dampening", "nesterov", "maximize")}
            if weights:
                each._fused_sgd_(weights, [p.grad for p in weights], momenta, is_first_step=False, **numbers)
