"""Where a data set's images are: in an array, or in picture files that are decoded when they are read."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from iblurry.data.picture import MODES, decode
from iblurry.errors import DataError, InputError

_LARGEST = 2**16  # pixels of a side
_EAGER_BYTES = 4 * 2**30  # images that take more stay on the disk; $IBLURRY_EAGER_BYTES changes it

Shape = tuple[int, int, int]  # (C, H, W)


class ImageStore(Protocol):
    """(N, C, H, W) bytes by row: an int gives one image, an array of ints or a slice gives several."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> NDArray[np.uint8]: ...


class PictureFiles:
    """Indexed like an array of bytes (N, C, H, W), but each image is read from its file at that moment.

    `names` are paths relative to the root, `shape` is (C, H, W) of every image: pictures are decoded as
    iblurry.data.picture says and, if `resized`, resized to this square; otherwise each must have the shape.
    """

    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, root: Path | str, names: Sequence[str], shape: Shape, *, resized: bool = True) -> None:
        if resized and shape[1] != shape[2]:
            raise InputError(f"Pictures are resized to squares, not to {shape[2]} x {shape[1]} pixels; give one side.")
        self.root = Path(root).absolute()  # processes that read them may have another working directory
        self.names = tuple(names)
        self.image, self.resized = shape, resized

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.names), *self.image

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, rows: Any, /) -> NDArray[np.uint8]:
        if isinstance(rows, int | np.integer):
            return read_picture(self.path(int(rows)), self.image, resized=self.resized)
        chosen = np.arange(len(self))[rows]
        images = np.empty((len(chosen), *self.image), dtype=np.uint8)
        for at, row in enumerate(chosen.tolist()):
            images[at] = self[row]
        return images

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.uint8, copy=False)

    def path(self, row: int) -> str:
        """The path of one picture."""
        return os.path.join(self.root, self.names[row])

    def stat_digest(self) -> bytes:
        """A digest of all names, file sizes and modification times in whole seconds.

        Reading the pixels of a million files takes an hour, asking for their sizes takes seconds. Copies that keep the
        times (cp -p, rsync -a, tar) have the same digest.
        """
        digest = hashlib.blake2b(repr((self.image, self.resized)).encode(), digest_size=32)
        for row, name in enumerate(self.names):
            try:
                stat = os.stat(self.path(row))
            except (OSError, ValueError) as error:
                raise _unreadable(self.path(row), error) from error
            digest.update(f"{name}\0{stat.st_size}\0{int(stat.st_mtime)}\n".encode("utf-8", "surrogateescape"))
        return digest.digest()


def load_images(
    root: Path, train: list[str], test: list[str], *, size: int | None, channels: int, lazy: bool | None
) -> tuple[ImageStore, ImageStore]:
    """Training and test images of one shape, from files below a root: decoded now, or (lazy) when they are read.

    They are lazy, unless given, where all of them take more than `eager_bytes`.
    """
    check_form(size, channels)
    names, resized = train + test, size is not None
    if size is None:  # all must have the shape of the first
        first = os.path.join(root, names[0])
        _, height, width = decode(read_bytes(first), first, channels).shape
    else:
        height = width = size
    shape = (channels, height, width)
    if len(names) * math.prod(shape) > eager_bytes() if lazy is None else lazy:
        return PictureFiles(root, train, shape, resized=resized), PictureFiles(root, test, shape, resized=resized)
    files = [os.path.join(root, name) for name in names]
    images = decode_pictures(files, read_bytes, shape, resized=resized, title=f"Reading {root.name}")
    return images[: len(train)], images[len(train) :]


def check_form(size: Any, channels: Any) -> None:
    """InputError where images cannot have this side in pixels, or None, and this number of channels, or None."""
    for name, given, possible, what in (
        ("size", size, range(1, _LARGEST + 1), f"a number of pixels from 1 to {_LARGEST:,}"),
        ("channels", channels, MODES, "1 (grey) or 3 (colour)"),
    ):
        is_whole = isinstance(given, Integral) and not isinstance(given, bool)
        if given is not None and not (is_whole and given in possible):
            raise InputError(f"{name}={given!r:.60} is not possible; give {what}.")


def read_picture(path: str, shape: Shape, *, resized: bool) -> NDArray[np.uint8]:
    """One picture as bytes (C, H, W), contiguous."""
    return _decode_picture(read_bytes(path), path, shape, resized=resized)


def decode_pictures(
    names: Sequence[str], read: Callable[[str], bytes], shape: Shape, *, resized: bool, title: str
) -> NDArray[np.uint8]:
    """(N, C, H, W): every picture decoded; `read` gives the bytes of a name. A terminal shows a progress bar."""
    from rich.console import Console
    from rich.progress import track

    images = np.empty((len(names), *shape), dtype=np.uint8)
    console = Console(stderr=True)
    bar = track(names, description=title, console=console, transient=True, disable=not console.is_terminal)
    for row, name in enumerate(bar):
        images[row] = _decode_picture(read(name), name, shape, resized=resized)
    return images


def _decode_picture(raw: bytes, name: str, shape: Shape, *, resized: bool) -> NDArray[np.uint8]:
    """One picture as bytes (C, H, W), contiguous: resized to the shape, or refused if it has another."""
    channels, height, width = shape
    image = decode(raw, name, channels, size=(width, height) if resized else None)
    if image.shape != shape:
        raise DataError(
            f"{name} is {image.shape[2]} x {image.shape[1]} pixels but others are {width} x {height}; "
            "give size=... so that all are resized to one size."
        )
    return image


def read_bytes(path: str) -> bytes:
    """The content of a file; DataError, which names it, where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # also a name that no file can have
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError | ValueError) -> DataError:
    why = (isinstance(error, OSError) and error.strerror) or error
    return DataError(f"{path} cannot be read ({why}); put it back, or load the data again.")


def eager_bytes() -> int:
    """How many bytes of images may be in memory at once: $IBLURRY_EAGER_BYTES, or 4 GiB."""
    return env_int("IBLURRY_EAGER_BYTES", _EAGER_BYTES)


def env_int(variable: str, default: int) -> int:
    """An environment variable that is a whole number from 0, or the default where it is not set."""
    given = os.environ.get(variable, "")
    if given and not given.isdecimal():
        raise InputError(f"{variable}={given!r} is not a whole number; give one from 0, or leave it out for {default}.")
    return int(given) if given else default
