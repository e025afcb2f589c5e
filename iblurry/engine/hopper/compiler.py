"""Compiles kernels in the background, many at a time, in threads."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

# Before these, `ast.parse` in two threads at once may raise SystemError (CPython issue 106905).
IN_THREADS = sys.version_info >= (3, 12, 2) or (3, 11, 8) <= sys.version_info < (3, 12)

Call = Callable[[], Any]

_started: dict[Hashable, Future[None]] = {}  # whatever was asked for in this process: nothing is compiled twice


def start(device: torch.device, calls: Sequence[tuple[Hashable, Call]]) -> list[Future[None]]:
    """Begins to compile; each call launches a kernel on meta tensors, and has a key that says which it is.

    Where Python cannot do so in threads, kernels are compiled one by one when they first run.
    """
    if not IN_THREADS:
        return []
    for key, call in calls:
        if (device, key) not in _started:
            _started[device, key] = _pool().submit(_run, device, call)
    return [_started[device, key] for key, _ in calls]


def wait(compiled: list[Future[None]]) -> None:
    """Until all are compiled; raises what went wrong. The list is empty afterwards."""
    while compiled:
        compiled.pop().result()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="compile")


def _run(device: torch.device, call: Call) -> None:
    with torch.cuda.device(device), torch.no_grad():
        call()
