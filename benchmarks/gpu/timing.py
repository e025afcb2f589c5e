"""Milliseconds of a call: until the device has done it, and until the host is free again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Cost(NamedTuple):
    """Milliseconds of one call."""

    whole: float  # until the device is done, calls following each other
    host: float  # to enqueue it


def timed(call: Callable[[], Any], times: int, device: torch.device | str) -> Cost:
    """The mean over so many calls in a row."""
    settle(device)
    start = time.perf_counter()
    for _ in range(times):
        call()
    host = time.perf_counter() - start
    settle(device)
    whole = time.perf_counter() - start
    return Cost(1000 * whole / times, 1000 * host / times)


def settle(device: torch.device | str) -> None:
    """Waits until the device has nothing left to do."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
