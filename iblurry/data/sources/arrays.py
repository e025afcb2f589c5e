"""Arrays in an .npz file: how imported data are stored, and a form anyone can write."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.data.images import eager_bytes
from iblurry.errors import DataError, InputError
from iblurry.storage.files import replacing

_NEEDED = ("x_train", "y_train", "x_test", "y_test")
IMAGES = ("x_train", "x_test")
_LOCAL_HEADER = 30  # bytes of a zip member before its name; the last four are the lengths of name and extra field
_OPTIONAL = ("classes", "mean", "std", "layout")


def arrays(path: Path) -> Dataset:
    """Reads x_train, y_train, x_test, y_test, and where present classes, mean, std and layout.

    The arrays may have every form that Dataset.from_arrays takes. Pickled objects are refused. Images of more than
    $IBLURRY_EAGER_BYTES (4 GiB) stay on the disk, which helps those stored as `save` does: bytes (N, C, H, W), plain.
    """
    held = _read(path)
    missing = [key for key in _NEEDED if key not in held]
    if missing:
        raise DataError(
            f"{path} has no {', '.join(missing)} (it has {', '.join(held) or 'nothing'}); "
            f"write it with numpy.savez and the keys {', '.join(_NEEDED)}."
        )
    try:
        return Dataset.from_arrays(
            *(held[key] for key in _NEEDED),
            name=path.stem,
            classes=held["classes"].tolist() if "classes" in held else None,
            mean=held["mean"].tolist() if "mean" in held else None,
            std=held["std"].tolist() if "std" in held else None,
            layout=str(held["layout"]) if "layout" in held else None,
        )
    except InputError as error:
        raise DataError(f"{path} cannot be used: {error}") from error


def save(dataset: Dataset, path: Path) -> None:
    """Writes what `arrays` reads, atomically."""
    with replacing(path) as part, part.open("wb") as file:
        np.savez(  # not compressed: photographs hardly shrink, and CIFAR-10 loads in a second
            file,
            x_train=np.asarray(dataset.train.images),
            y_train=dataset.train.labels,
            x_test=np.asarray(dataset.test.images),
            y_test=dataset.test.labels,
            classes=np.array(dataset.classes),
            mean=np.array(dataset.mean),
            std=np.array(dataset.std),
            layout=np.array("NCHW"),
        )


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise DataError(f"There is no file {path}; give the path of an .npz file.")
    try:
        with path.open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            if isinstance(stored, np.ndarray):
                raise ValueError("it holds a single array without a name")
            large = IMAGES if _stored_bytes(path, IMAGES) > eager_bytes() else ()
            held = [key for key in (*_NEEDED, *_OPTIONAL) if key in stored.files]
            views = {key: _map_array(path, key) for key in large if key in held}
            return {key: stored[key] if (view := views.get(key)) is None else view for key in held}
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is not a readable .npz file of plain arrays, without pickled objects; it is cut short, damaged or "
            f"of another kind, so write or import it again (numpy.savez with the keys {', '.join(_NEEDED)})."
        ) from error


def _map_array(path: Path, key: str) -> NDArray[Any] | None:
    """The array `key` as a memory map; None where it is compressed and can only be read whole.

    `numpy.savez` does not compress. The checksum is not verified, so damaged pixels go unnoticed.
    """
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{key}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    with path.open("rb") as file:
        file.seek(member.header_offset)
        name, extra = struct.unpack("<HH", file.read(_LOCAL_HEADER)[-4:])
        file.seek(name + extra, 1)
        read_header = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError(f"{key} holds pickled objects")
        order = "F" if fortran else "C"
        return np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=shape, order=order)  # type: ignore[call-overload, no-any-return]


def _stored_bytes(path: Path, keys: tuple[str, ...]) -> int:
    """Bytes that these arrays take in memory."""
    with zipfile.ZipFile(path) as archive:
        names = {f"{key}.npy" for key in keys}
        return sum(member.file_size for member in archive.infolist() if member.filename in names)
