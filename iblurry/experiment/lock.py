"""A lock on a file that the system lets go of when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iblurry.errors import BusyError, FolderError
from iblurry.experiment.disk import stops_when_full


@contextmanager
def held(path: Path, *, patience: float, remedy: str) -> Iterator[None]:
    """Nobody else holds it meanwhile; BusyError when another process does for longer than `patience` seconds."""
    try:
        with stops_when_full(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise FolderError(f"{path.parent} cannot be written: {error.strerror}. {remedy.capitalize()}.") from error
    try:
        _take(lock, path, patience, remedy)
        yield
    finally:
        os.close(lock)


def _take(lock: int, path: Path, patience: float, remedy: str) -> None:
    for _ in range(int(patience / 0.1) + 1):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.1)
        else:
            return
    raise BusyError(f"Another process is running in {path.parent}; wait for it, or {remedy}.")
