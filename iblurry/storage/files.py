"""Files: written whole or not at all, locked for one process, and the system's refusals as errors with a remedy."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iblurry.errors import BusyError, DiskFullError, FolderError, InputError


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically and durably: a crash at any moment leaves the old file or the new one.

    Parameters
    ----------
    path : Path
        The file; its folder must exist. The temporary file beside it is `path` + ".tmp", which the next write
        overwrites if a killed process left it, so one process at a time may write to `path`.
    data : bytes
        The whole content.
    """
    temporary = path.with_name(path.name + ".tmp")
    with full_disk_error(path.parent), _replaced_by(temporary, path):
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            write_all(file, data)
            os.fsync(file)
        finally:
            os.close(file)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to, and rename it to `path` when the block ends without an error.

    Parameters
    ----------
    path : Path
        The file to write; missing folders are created. The temporary path has the same suffix, for writers that
        choose a format by it, and this process's id, so that several processes may write the same file.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _replaced_by(temporary, path):
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())


@contextmanager
def _replaced_by(temporary: Path, path: Path) -> Iterator[None]:
    try:
        yield
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def private_files() -> Iterator[None]:
    """Files made meanwhile, in this process and those it starts, are for their owner alone: 0600, and folders 0700."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_private(folder: Path) -> list[str]:
    """Take the rights of others off a folder and the files in it; a sentence for each that is not ours to change."""
    troubles = []
    for path in (folder, *folder.iterdir()):
        try:
            mode = path.lstat().st_mode
            if mode & 0o077 and (path == folder or stat.S_ISREG(mode)):
                path.chmod(stat.S_IMODE(mode) & 0o700)
        except FileNotFoundError:  # of a checkpoint that is being replaced
            continue
        except PermissionError:
            troubles.append(f"{path} can be read by others and is not yours; its owner must chmod it.")
    return troubles


def file_id(path: Path) -> tuple[int, int] | None:
    """Device and inode: a path that has others names another file. None where there is no file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def write_all(file: int, data: bytes) -> None:
    """Write every byte: the system may take fewer than it is given (a disk nearly full, more than 2 GiB at once)."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a new file survives a power failure only when its folder was synced."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def full_disk_error(folder: Path) -> Iterator[None]:
    """Turn "no space left" and "quota exceeded" into DiskFullError; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFullError(
            f"The disk of {folder} is full; free some space, and the same command continues from what was saved last."
        ) from error


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn every refusal to write a file that the user named into DiskFullError or InputError."""
    try:
        with full_disk_error(path.parent):
            yield
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}); choose another place.") from error


@contextmanager
def locked(path: Path, *, timeout: float, remedy: str) -> Iterator[None]:
    """Hold an exclusive lock on a file; the system releases it when the process ends, however it ends.

    Parameters
    ----------
    path : Path
        The lock file; it and its folder are created.
    timeout : float
        Seconds to wait for another process to release it before BusyError is raised.
    remedy : str
        What the user can do instead of waiting, as the end of a sentence: "choose another --out".
    """
    try:
        with full_disk_error(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise FolderError(f"{path.parent} cannot be written: {error.strerror}. {remedy.capitalize()}.") from error
    try:
        _take_lock(lock, path, timeout, remedy)
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # also for processes that were forked meanwhile, which have the file open
        os.close(lock)


def _take_lock(lock: int, path: Path, timeout: float, remedy: str) -> None:
    for _ in range(int(timeout / 0.1) + 1):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.1)
        else:
            return
    raise BusyError(f"Another process is running in {path.parent}; wait for it, or {remedy}.")


def as_path(given: str | os.PathLike[str]) -> Path:
    """The path of a file; InputError for what is none."""
    try:
        return Path(given)
    except TypeError as error:
        raise InputError(f"path={given!r:.80} is not a path; give the name of a file.") from error
