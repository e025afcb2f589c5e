"""An array of an .npz file as a view of the file, for those that do not fit into the memory."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

LOCAL = 30  # bytes of a local file header before the name; its last four are the lengths of name and extra field


def mapped(path: Path, key: str) -> NDArray[Any] | None:
    """The array `key`, read from the disk where it is touched; None where it is compressed and can only be read whole.

    `numpy.savez` does not compress. Nothing is checked that is not read, so damaged pixels go unnoticed.
    """
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{key}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    with path.open("rb") as file:
        file.seek(member.header_offset)
        name, extra = struct.unpack("<HH", file.read(LOCAL)[-4:])
        file.seek(name + extra, 1)
        read_header = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError(f"{key} holds pickled objects")
        order = "F" if fortran else "C"
        return np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=shape, order=order)  # type: ignore[call-overload, no-any-return]


def stored_bytes(path: Path, keys: tuple[str, ...]) -> int:
    """What these arrays take in memory."""
    with zipfile.ZipFile(path) as archive:
        names = {f"{key}.npy" for key in keys}
        return sum(member.file_size for member in archive.infolist() if member.filename in names)
