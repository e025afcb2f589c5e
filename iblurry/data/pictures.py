"""Picture files that are decoded when they are asked for: a data set larger than the memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.sources.decoding import decode
from iblurry.errors import DataError, InputError

Shape = tuple[int, int, int]  # (C, H, W)


class Pictures:
    """Indexed like an array of bytes (N, C, H, W), but each image is read from its file at that moment.

    Pictures are turned upright, converted to RGB or grey and resized to the shape, whatever their aspect; if they are
    not to be resized they must all have it.
    """

    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, root: Path | str, names: Sequence[str], shape: Shape, *, resized: bool = True) -> None:
        if resized and shape[1] != shape[2]:
            raise InputError(f"Pictures are resized to squares, not to {shape[2]} x {shape[1]} pixels; give one side.")
        self.root = Path(root).absolute()  # whoever reads them may be somewhere else by then
        self.names = tuple(names)  # from the root on
        self.image, self.resized = shape, resized

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.names), *self.image

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, rows: Any, /) -> NDArray[np.uint8]:
        if isinstance(rows, int | np.integer):
            return read_picture(self.file(int(rows)), self.image, resized=self.resized)
        chosen = np.arange(len(self))[rows]
        images = np.empty((len(chosen), *self.image), dtype=np.uint8)
        for place, row in enumerate(chosen.tolist()):
            images[place] = self[row]
        return images

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.uint8, copy=False)

    def file(self, row: int) -> str:
        """The path of one picture."""
        return os.path.join(self.root, self.names[row])

    def stamp(self) -> bytes:
        """Changes when the pictures do: a digest of all names, file sizes and times of change in whole seconds.

        Reading the pixels of a million files takes an hour, asking for their sizes takes seconds. Copies that keep the
        times (cp -p, rsync -a, tar) have the same stamp.
        """
        digest = hashlib.blake2b(repr((self.image, self.resized)).encode(), digest_size=32)
        for row, name in enumerate(self.names):
            try:
                about = os.stat(self.file(row))
            except OSError as error:
                raise _unreadable(self.file(row), error) from error
            digest.update(f"{name}\0{about.st_size}\0{int(about.st_mtime)}\n".encode("utf-8", "surrogateescape"))
        return digest.digest()


def read_picture(path: str, shape: Shape, *, resized: bool) -> NDArray[np.uint8]:
    """One picture as bytes (C, H, W), contiguous."""
    channels, height, width = shape
    image = decode(read_bytes(path), path, size=height if resized else None, channels=channels)
    if image.shape != shape:
        raise DataError(
            f"{path} is {image.shape[2]} x {image.shape[1]} pixels but others are {width} x {height}; "
            "give size=... so that all are resized to one size."
        )
    return np.ascontiguousarray(image)


def first_shape(path: str, channels: int) -> Shape:
    """The shape that all pictures must have where none is given: that of this one."""
    _, height, width = decode(read_bytes(path), path, size=None, channels=channels).shape
    return channels, height, width


def read_bytes(path: str) -> bytes:
    """What the file holds."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read ({error.strerror or error}); put it back, or load the data anew.")
