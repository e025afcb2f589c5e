"""Writes a file whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iblurry.errors import DiskFullError, InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary neighbour to write to, renamed to `path` once all went well: nobody ever reads half a file."""
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        with saying_where(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield part
            part.replace(path)
    finally:
        if part.exists():
            part.unlink()


@contextmanager
def saying_where(path: Path) -> Iterator[None]:
    """Turns the system's refusal to write into a sentence with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFullError(
                f"The disk is full, so {path} was not written; free some space and try again."
            ) from error
        raise InputError(f"{path} cannot be written ({error.strerror or error}); choose another place.") from error
