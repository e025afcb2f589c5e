"""Files that are whole or not there, and a full disk said in a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iblurry.errors import DiskFullError


def replace_file(path: Path, data: bytes) -> None:
    """Put a file in place at one stroke: a crash at any moment leaves the old one or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    with stops_when_full(path.parent):
        try:
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            try:
                write_all(file, data)
                os.fsync(file)
            finally:
                os.close(file)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_all(file: int, data: bytes) -> None:
    """Write every byte: the system may take fewer than it is given (a disk nearly full, more than 2 GiB at once)."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a file is safe only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def stops_when_full(folder: Path) -> Iterator[None]:
    """Turns "no space left" and "quota exceeded" into DiskFullError."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFullError(
            f"There is no room left on the disk of {folder}; once there is, "
            "the same command continues the run from its last checkpoint."
        ) from error
