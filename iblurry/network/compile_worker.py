"""Processes that compile own kernels. A command starts them before it imports torch, which they import meanwhile."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pickle
import re
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORKERS = min(8, os.cpu_count() or 1)
PROGRAM = "iblurry.network.hopper.compile_process"  # calls `serve`
IDLE = 60  # seconds without a call, after which a worker ends
GPUS = Path("/proc/driver/nvidia/gpus")  # a folder for each, where NVIDIA's driver is
HOPPER = re.compile(r"^Model:.*\bG?H(?:20|100|200|800)\b", re.MULTILINE)

_early: list[CompileWorker] = []  # that no thread has taken yet


class CompileWorker:
    """A process that compiles into Triton's cache, from where this one loads.

    It ends with this process, which is the end of its input, or when it had nothing to do for a while.

    Parameters
    ----------
    is_early : bool
        Whether threads wait until it is ready; else they compile themselves until then.
    """

    def __init__(self, *, is_early: bool = False) -> None:
        self._is_early, self._is_ready = is_early, False
        paths = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM],
            env=os.environ | paths,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def is_ready(self) -> bool:
        """Whether it has imported what it needs, which takes seconds."""
        assert self._process.stdout is not None
        if not self._is_ready and (self._is_early or select.select([self._process.stdout], [], [], 0)[0]):
            self._is_ready = bool(self._process.stdout.readline())
        return self._is_ready

    def compile(self, call: Callable[[], Any]) -> None:
        """Makes the call there; until it says that it is done, or ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            pickle.dump(call, self._process.stdin)
            self._process.stdin.flush()
            self._process.stdout.readline()


def start_early() -> None:
    """`start_workers`, where there is a GPU that own kernels are for."""
    if has_hopper() and importlib.util.find_spec("triton") is not None:
        start_workers()


@functools.cache  # once
def start_workers() -> None:
    """Where Triton has never compiled anything: there will be much to do."""
    if not _triton_cache().exists():
        _early.extend(CompileWorker(is_early=True) for _ in range(WORKERS))


def take_early() -> CompileWorker | None:
    """One that was started early and belongs to nobody, if there is any."""
    try:
        return _early.pop()  # in one step: threads ask for it
    except IndexError:
        return None


def has_hopper() -> bool:
    """Whether the driver lists a Hopper GPU; where it does not say, none."""
    with contextlib.suppress(OSError):
        return any(HOPPER.search((gpu / "information").read_text()) for gpu in GPUS.iterdir())
    return False


def _triton_cache() -> Path:
    named, home = os.environ.get("TRITON_CACHE_DIR"), os.environ.get("TRITON_HOME")
    return Path(named) if named else Path(home or Path.home(), ".triton", "cache")


def serve() -> None:
    """What a worker does: says with a line that it is ready, reads pickled calls, and answers each with a line."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what others print is no answer
    calls: Any = sys.stdin.buffer
    answers.write(b"\n")
    while select.select([calls], [], [], IDLE)[0] and calls.peek(1):
        call = pickle.load(calls)
        try:
            call()
        finally:
            answers.write(b"\n")
