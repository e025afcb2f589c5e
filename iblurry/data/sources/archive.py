"""Files by name, whether they are in a folder, a tar or a zip."""

from __future__ import annotations

import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from iblurry.errors import DataError

_CORRUPT = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class Archive:
    """Names and the bytes behind them; nothing is unpacked to disk."""

    def __init__(self, path: Path, names: list[str], read: Callable[[str], bytes]) -> None:
        self.path = path
        self.names = names
        self._read = read
        self._by_base: dict[str, list[str]] = {}
        for name in names:
            self._by_base.setdefault(name.rpartition("/")[2], []).append(name)

    def has(self, base: str) -> bool:
        """Whether a file of this name (without its folders) is here."""
        return base in self._by_base

    def read_base(self, base: str) -> bytes:
        """The bytes of the one file of this name (without its folders)."""
        found = self._by_base.get(base, [])
        if not found:
            raise DataError(f"{self.path} has no file {base}; the copy is incomplete, so download or copy it again.")
        if len(found) > 1:
            raise DataError(f"{self.path} has {base} {len(found)} times ({', '.join(found)}); name the folder of one.")
        return self.read(found[0])

    def read(self, name: str) -> bytes:
        """The bytes of one of `names`."""
        try:
            return self._read(name)
        except _CORRUPT as error:
            raise DataError(f"{name} in {self.path} cannot be read ({error}); download or copy it again.") from error


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """A folder, a tar (compressed or not) or a zip as an Archive."""
    if path.is_dir():
        yield Archive(path, _list_files(path), lambda name: (path / name).read_bytes())
    elif not path.exists():
        raise DataError(f"There is no file or folder {path}; give the place of your copy of the data.")
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield Archive(path, [i.filename for i in archive.infolist() if not i.is_dir()], archive.read)
    else:
        held = _read_tar(path)
        yield Archive(path, list(held), held.__getitem__)


def _list_files(path: Path) -> list[str]:
    found = [Path(folder, file).relative_to(path) for folder, _, files in os.walk(path) for file in files]
    return sorted(name.as_posix() for name in found)


def _read_tar(path: Path) -> dict[str, bytes]:
    held = {}
    try:
        # in one pass: going back in a compressed tar means decompressing it again from the start
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None:
                    held[member.name] = file.read()
    except _CORRUPT as error:
        raise DataError(
            f"{path} cannot be read as a tar or zip archive; it is cut short, damaged or of another kind, "
            "so download or copy it again."
        ) from error
    return held
