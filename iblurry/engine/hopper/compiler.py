"""Compiles kernels in the background, many at a time: in processes, and in threads until these have started.

Half of a compilation is Python, for which threads wait for each other, and so does what else runs in this process.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from iblurry.engine.compile_worker import WORKERS, CompileWorker, start_workers, take_early

LONG = 0.2  # seconds: what is in the cache takes a hundredth
# Before these, `ast.parse` in two threads at once may raise SystemError (CPython issue 106905).
IN_THREADS = sys.version_info >= (3, 12, 2) or (3, 11, 8) <= sys.version_info < (3, 12)

Call = Callable[[], Any]

_started: dict[Hashable, Future[None]] = {}  # whatever was asked for in this process: nothing is compiled twice
_own = threading.local()  # each thread's worker


def start(device: torch.device, calls: Sequence[tuple[Hashable, Call]]) -> list[Future[None]]:
    """Begins to compile; each call launches a kernel on meta tensors, and has a key that says which it is.

    Where Python cannot do so in threads, kernels are compiled one by one when they first run.
    """
    if not IN_THREADS:
        return []
    start_workers()  # where no command has
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
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="compile")


def _run(device: torch.device, call: Call) -> None:
    """Loads a kernel out of the cache, or compiles it: by this thread's worker once that is ready, until then here."""
    worker: CompileWorker | None = getattr(_own, "worker", None) or take_early()
    if worker is not None and worker.has_ended:
        worker = None
    if worker is not None and worker.is_ready:
        worker.compile(call)
    began = time.monotonic()
    with torch.cuda.device(device), torch.no_grad():
        call()  # what the worker could not compile is compiled here, and raises here what is wrong
    if worker is None and time.monotonic() - began > LONG:  # the cache lacks this kernel, so others, too
        worker = CompileWorker()
    _own.worker = worker
