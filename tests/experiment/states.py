"""States to save, and what became of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from iblurry.storage.checkpoint import LoadedCheckpoint, load_latest


def state(seed: int = 0) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(4, 3, generator=draw)
    return {
        "network": {"head.weight": weight, "also/head": weight, "steps": torch.tensor(7 + seed)},
        "optimizer": {"state": {0: {"exp_avg": weight * 2}, 10: {"exp_avg": weight * 3}, 2: {}}, "lr": 3e-4},
        "memory": [torch.randint(0, 256, (5, 2), dtype=torch.uint8, generator=draw), np.arange(3) * 0.1],
        "pace": "2/3",
        "base": (1e-05, 1.5e200, float("-inf"), None, True, -3, [], (), {}),
    }


def same(one: Any, two: Any) -> bool:
    """Equal types, shapes and bits all the way down."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(two, torch.Tensor)
            and one.dtype == two.dtype
            and one.shape == two.shape
            and bits(one) == bits(two)
        )
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(two) and len(one) == len(two) and all(map(same, one, two))
    return type(one) is type(two) and repr(one) == repr(two)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def latest(folder: Path) -> LoadedCheckpoint:
    loaded = load_latest(folder)
    assert loaded is not None
    return loaded


def held(folder: Path) -> list[str]:
    """What lies in a folder, with checkpoints as "@100"."""
    return sorted(re.sub(r"checkpoint-0*(\d+)\.safetensors$", r"@\1", path.name) for path in folder.iterdir())
