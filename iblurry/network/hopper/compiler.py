"""Compiles kernels in the background, many at a time: in threads, and in processes as soon as these have started.

Half of a compilation is Python, for which threads wait for each other, and so does what else runs in this process. A
process compiles into Triton's cache, from where this one loads.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import select
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
_own = threading.local()  # each thread's process, and whether it is ready


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
    """Loads a kernel out of the cache, or compiles it: by this thread's process once that is ready, until then here."""
    process: subprocess.Popen[bytes] | None = getattr(_own, "process", None)
    if process is not None and process.poll() is not None:
        process = _own.process = None
    if process is not None and _is_ready(process):
        _compile_apart(process, call)
    began = time.monotonic()
    with torch.cuda.device(device), torch.no_grad():
        call()  # what the process could not compile is compiled here, and raises here what is wrong
    if process is None and time.monotonic() - began > LONG:  # the cache lacks this kernel, so others, too
        _own.process, _own.is_ready = _start_process(), False


def _is_ready(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has said so: it imports for some seconds, and the thread does not wait for it."""
    assert process.stdout is not None
    if not _own.is_ready and select.select([process.stdout], [], [], 0)[0]:
        _own.is_ready = bool(process.stdout.readline())
    return bool(_own.is_ready)


def _compile_apart(process: subprocess.Popen[bytes], call: Call) -> None:
    """By the process, into the cache; until it says that it is done, or ends."""
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
