"""Picture files in folders: train/<class>/* and test/<class>/*."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from iblurry.data.dataset import Dataset, Labelled, moments
from iblurry.data.sources.pictures import decode_all
from iblurry.errors import DataError

LAYOUT = "put pictures in train/<class>/ and test/<class>/ (or val/<class>/)"


def folder(path: Path, *, size: int | None = None, channels: int = 3) -> Dataset:
    """Classes are the sorted names of the folders in train/; pictures come in the order of their file names.

    Pictures are converted to RGB, or to grey with channels=1, and resized to (size, size) with bilinear interpolation;
    without a size they must all have the same one.
    """
    if not path.is_dir():
        raise DataError(f"There is no folder {path}; {LAYOUT} and give their parent.")
    learnt = path / "train"
    tested = path / "test" if (path / "test").is_dir() else path / "val"
    classes = _subfolders(learnt)
    strange = sorted(set(_subfolders(tested)) - set(classes))
    if strange:
        raise DataError(
            f"{tested} has the class {strange[0]!r}, which {learnt} has not; add training pictures or remove it."
        )
    train = [_pictures(learnt / name) for name in classes]
    test = [_pictures(tested / name) for name in classes]
    empty = [name for name, found in zip(classes, train, strict=True) if not found]
    if empty:
        raise DataError(f"{learnt / empty[0]} has no pictures; add some or remove the folder.")
    files = [file for found in train + test for file in found]
    images = decode_all(
        files, lambda file: Path(file).read_bytes(), size=size, channels=channels, title=f"Reading {path.name}"
    )
    labels = [np.repeat(np.arange(len(classes)), [len(found) for found in part]) for part in (train, test)]
    end = len(labels[0])
    mean, std = moments(images[:end])
    return Dataset(
        name=path.resolve().name,
        classes=tuple(classes),
        train=Labelled(images[:end], labels[0]),
        test=Labelled(images[end:], labels[1]),
        mean=mean,
        std=std,
    )


def _subfolders(root: Path) -> list[str]:
    if not root.is_dir():
        raise DataError(f"There is no folder {root}; {LAYOUT}.")
    found = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise DataError(f"{root} has no folders of classes; {LAYOUT}.")
    return found


def _pictures(root: Path) -> list[str]:
    return sorted(str(file) for file in root.rglob("*") if file.is_file() and not file.name.startswith("."))
