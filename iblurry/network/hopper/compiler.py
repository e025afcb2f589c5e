"""Compiles kernels in the background, many at a time: in processes, as half of a compilation is Python.

A process compiles into Triton's cache, from where this one loads; threads alone would wait for each other.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from triton.runtime import driver

THREADS = min(8, os.cpu_count() or 1)  # each with a process
LONG = 0.2  # seconds: what is in the cache takes a hundredth
# Before these, `ast.parse` in two threads at once may raise SystemError (CPython issue 106905).
IN_THREADS = sys.version_info >= (3, 12, 2) or (3, 11, 8) <= sys.version_info < (3, 12)

Call = Callable[[], Any]

_started: dict[Hashable, Future[None]] = {}  # whatever was asked for in this process: nothing is compiled twice
_own = threading.local()  # each thread's process


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
    return ThreadPoolExecutor(THREADS, thread_name_prefix="compile")


def _run(device: torch.device, call: Call) -> None:
    with torch.cuda.device(device), torch.no_grad():
        if not _Cache.is_known:
            with _Cache.first:  # one thread finds out, and the others wait for it
                if not _Cache.is_known:
                    _call(call)
                    return
        if _Cache.lacks:
            _compile_apart(call)
        _call(call)


def _call(call: Call) -> None:
    """Loads a kernel out of the cache, or compiles it here."""
    began = time.monotonic()
    call()
    _Cache.lacks = _Cache.lacks or time.monotonic() - began > LONG
    _Cache.is_known = True


class _Cache:
    is_known = False
    lacks = False  # whether a kernel was missing in it: then others are, and processes are worth their start
    first = threading.Lock()


def _compile_apart(call: Call) -> None:
    """By this thread's process. If it fails, the kernel is compiled here, and what is wrong is raised here."""
    process: subprocess.Popen[bytes] | None = getattr(_own, "process", None)
    if process is None or process.poll() is not None:
        process = _own.process = _start_process()
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        pickle.dump(call, process.stdin)
        process.stdin.flush()
        process.stdout.readline()


def _start_process() -> subprocess.Popen[bytes]:
    """It ends with this process, which is the end of its input, or when it had nothing to do for a while."""
    target = driver.active.get_current_target()
    words = [sys.executable, "-m", "iblurry.network.hopper.compile_process", target.backend, str(target.arch)]
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    return subprocess.Popen(
        [*words, str(target.warp_size)],
        env=paths,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
