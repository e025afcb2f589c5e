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

from iblurry.data.images import usable_cores

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
LOGGER = logging.getLogger(__name__)


def is_small(network: Any) -> bool:
    """Whether it is one that several threads or a GPU make slower; others gain from them."""
    return isinstance(network, str) and network.partition(":")[0] in ("convnet", "mlp")


def default_threads(network: Any) -> int | None:
    """1 for a small network: beside one busy core several threads are some 20 times slower, as all wait for the last.

    None, as many as torch has, for other networks and where the user chose a number.
    """
    now = torch.get_num_threads()
    if now == 1 or not is_small(network) or now not in _torch_defaults() or any(map(os.environ.get, VARIABLES)):
        return None
    _say_once(now)
    return 1


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Torch has so many threads meanwhile, and afterwards as many as before; None leaves it alone."""
    before = torch.get_num_threads()
    if changes := number not in (None, before):
        torch.set_num_threads(number or before)
    try:
        yield
    finally:
        if changes:
            torch.set_num_threads(before)


@functools.cache
def _torch_defaults() -> set[int]:
    """How many threads torch takes by itself: one for each core, or, by MKL, one for all hyperthreads of a core."""
    siblings = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    return {usable_cores(), os.cpu_count() or 1, len({path.read_text() for path in siblings})}


@functools.cache
def _say_once(before: int) -> None:
    LOGGER.info(
        "A small network learns with 1 thread instead of torch's %d, because several are slow while other programs "
        "run; set another number by threads=, torch.set_num_threads or OMP_NUM_THREADS.",
        before,
    )
