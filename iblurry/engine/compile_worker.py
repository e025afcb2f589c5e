"""Processes that compile own kernels. They take seconds to start: a command begins with them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

WORKERS = min(8, os.cpu_count() or 1)
PROGRAM = "iblurry.engine.hopper.compile_process"  # calls `serve`
IDLE = 60  # seconds without a call, after which a worker ends
HOPPER = (9, 0)  # the capability of GPUs that own kernels are for

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


def start_early(networks: Iterable[str]) -> None:
    """`start_workers`, where networks like these train by own kernels."""
    import torch

    has_triton, are_resnets = importlib.util.find_spec("triton"), any(name.startswith("resnet") for name in networks)
    if has_triton and are_resnets and torch.cuda.is_available() and torch.cuda.get_device_capability() == HOPPER:
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
