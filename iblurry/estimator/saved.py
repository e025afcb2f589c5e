"""A learner's state as plain arrays, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def as_arrays(state: Any) -> Any:
    """Its tensors as numpy arrays; the arrays are the tensors' own memory where that is the host's."""
    return _each(state, torch.Tensor, lambda tensor: tensor.detach().cpu().numpy())


def as_tensors(state: Any) -> Any:
    """Its arrays as tensors with memory of their own."""
    return _each(state, np.ndarray, lambda array: torch.from_numpy(array.copy()))


def _each(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The same dicts and lists with every value of this kind changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {name: _each(one, kind, change) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_each(one, kind, change) for one in value)
    return value
