"""Runs each step as it is written, call by call: the engine of the CPU and the reference for every other."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


class Eager:
    """Hands tensors of the host to the device and leaves a step as it is."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)

    def stage(self, values: Tensor) -> Tensor:
        """The same numbers where the step runs."""
        return values.to(self.device)

    def compile(self, step: Callable[P, R]) -> Callable[P, R]:
        """The step itself: nothing to prepare."""
        return step
