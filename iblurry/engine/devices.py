"""Engines and devices by name."""

from __future__ import annotations

import os

import torch

from iblurry.engine.eager import Eager, Precision
from iblurry.engine.graph import Graph


def make_engine(device: str = "cpu", precision: Precision | None = None) -> Eager:
    """Eager in float32 on the CPU; captured graphs in bfloat16 on a GPU, unless another precision is given.

    >>> make_engine("cpu").precision
    'float32'
    """
    if device.startswith("cuda"):
        return Graph(device, precision or "bfloat16")
    return Eager(device, precision or "float32")


def default_device(*, heavy: bool) -> str:
    """What "auto" means: a GPU for a heavy network where there is one; a small network is faster on the CPU."""
    return "cuda" if heavy and torch.cuda.is_available() else "cpu"


def visible_gpus() -> list[str]:
    """What $CUDA_VISIBLE_DEVICES calls each GPU that this process may use."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [str(number) for number in range(torch.cuda.device_count())]
    return [name.strip() for name in listed.split(",") if name.strip()][: torch.cuda.device_count()]
