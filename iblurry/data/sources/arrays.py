"""Arrays in an .npz file: how imported data are stored, and a form anyone can write."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.data.images import eager_bytes
from iblurry.data.sources.mapping import mapped, stored_bytes
from iblurry.errors import DataError, InputError
from iblurry.files import replacing

NEEDED = ("x_train", "y_train", "x_test", "y_test")
IMAGES = ("x_train", "x_test")
OPTIONAL = ("classes", "mean", "std", "layout")


def arrays(path: Path) -> Dataset:
    """Reads x_train, y_train, x_test, y_test, and where present classes, mean, std and layout.

    The arrays may have every form that Dataset.from_arrays takes. Pickled objects are refused. Images of more than
    $IBLURRY_EAGER_BYTES (4 GiB) stay on the disk, which helps those stored as `save` does: bytes (N, C, H, W), plain.
    """
    held = _read(path)
    missing = [key for key in NEEDED if key not in held]
    if missing:
        raise DataError(
            f"{path} has no {', '.join(missing)} (it has {', '.join(held) or 'nothing'}); "
            f"write it with numpy.savez and the keys {', '.join(NEEDED)}."
        )
    try:
        return Dataset.from_arrays(
            *(held[key] for key in NEEDED),
            name=path.stem,
            classes=held["classes"].tolist() if "classes" in held else None,
            mean=held["mean"].tolist() if "mean" in held else None,
            std=held["std"].tolist() if "std" in held else None,
            layout=str(held["layout"]) if "layout" in held else None,
        )
    except InputError as error:
        raise DataError(f"{path} cannot be used: {error}") from error


def save(dataset: Dataset, path: Path) -> None:
    """Writes what `arrays` reads, whole or not at all."""
    with replacing(path) as part, part.open("wb") as file:
        np.savez(  # not compressed: photographs hardly shrink, and CIFAR-10 loads in a blink
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
            large = IMAGES if stored_bytes(path, IMAGES) > eager_bytes() else ()
            held = [key for key in (*NEEDED, *OPTIONAL) if key in stored.files]
            views = {key: mapped(path, key) for key in large if key in held}
            return {key: stored[key] if (view := views.get(key)) is None else view for key in held}
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is not a readable .npz file of plain arrays, without pickled objects; it is cut short, damaged or "
            f"of another kind, so write or import it again (numpy.savez with the keys {', '.join(NEEDED)})."
        ) from error
