"""Torch's number of threads: one for a small network, which is slower with several, unless the user chose another."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from iblurry.data.prefetch import usable_cores

SMALL_NETWORKS = ("convnet", "mlp")  # slower with several threads or on a GPU; others gain from them
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
LOGGER = logging.getLogger(__name__)


def is_small(network: Any) -> bool:
    """Whether it is one of the small built-in networks, by its name."""
    return isinstance(network, str) and network.partition(":")[0] in SMALL_NETWORKS


def default_threads(network: Any) -> int | None:
    """1 for a small network; None, as many as torch has, for others and where the user chose a number.

    One busy core beside several threads makes a small network some 20 times slower: all wait for the last of them.
    """
    now = torch.get_num_threads()
    is_chosen = now not in _torch_defaults() or any(os.environ.get(name) for name in VARIABLES)
    if now == 1 or is_chosen or not is_small(network):
        return None
    _say_once(now)
    return 1


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Torch has so many threads meanwhile, and afterwards as many as before; None leaves it alone."""
    before = torch.get_num_threads()
    if number is None or number == before:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@functools.cache
def _torch_defaults() -> set[int]:
    """How many threads torch takes by itself: one for each core, or, by MKL, one for all hyperthreads of a core."""
    cores = {usable_cores(), os.cpu_count() or 1}
    siblings = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    return cores | {len({path.read_text() for path in siblings})}


@functools.cache
def _say_once(before: int) -> None:
    LOGGER.info(
        "Small networks (%s) learn with 1 thread instead of torch's %d: more are slow beside other programs. "
        "threads=, torch.set_num_threads or OMP_NUM_THREADS choose another number.",
        ", ".join(SMALL_NETWORKS),
        before,
    )
