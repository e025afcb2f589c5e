"""Picture files in folders: train/<class>/* and test/<class>/*."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from iblurry.data.dataset import Dataset, Labelled, moments
from iblurry.data.images import Images, eager_bytes
from iblurry.data.pictures import Pictures, first_shape, read_bytes
from iblurry.data.sources.decoding import check_form, decode_all
from iblurry.errors import DataError

LAYOUT = "put pictures in train/<class>/ and test/<class>/ (or val/<class>/)"
MEASURED = 2000  # training pictures to take mean and std from; as many for few as for a million


def folder(path: Path, *, size: int | None = None, channels: int = 3, lazy: bool | None = None) -> Dataset:
    """Classes are the sorted names of the folders in train/; pictures come in the order of their file names.

    Pictures are converted to RGB, or to grey with channels=1, and resized to (size, size) with bilinear interpolation;
    without a size they must all have the same one. They are decoded when they are due if lazy, or if lazy is not given
    and all of them take more than $IBLURRY_EAGER_BYTES (4 GiB); otherwise now. Mean and std are those of 2,000 training
    pictures that lie evenly spread.
    """
    if not path.is_dir():
        raise DataError(f"There is no folder {path}; {LAYOUT} and give their parent.")
    tested = "test" if (path / "test").is_dir() else "val"
    classes = subfolders(path / "train")
    check_known(path, tested, subfolders(path / tested), classes)
    train = [files_in(path, os.path.join("train", name)) for name in classes]
    test = [files_in(path, os.path.join(tested, name)) for name in classes]
    check_none_empty(path / "train", classes, train)
    labels = [np.repeat(np.arange(len(classes)), [len(found) for found in part]) for part in (train, test)]
    names = [[name for found in part for name in found] for part in (train, test)]
    learnt, asked = images_of(path, *names, size=size, channels=channels, lazy=lazy)
    mean, std = moments(learnt, most=MEASURED)
    return Dataset(
        name=path.resolve().name,
        classes=tuple(classes),
        train=Labelled(learnt, labels[0]),
        test=Labelled(asked, labels[1]),
        mean=mean,
        std=std,
    )


def images_of(
    root: Path, train: list[str], test: list[str], *, size: int | None, channels: int, lazy: bool | None
) -> tuple[Images, Images]:
    """Training and test images of one shape: decoded now, or when they are due."""
    check_form(size=size, channels=channels)
    names = train + test
    shape = (channels, size, size) if size else first_shape(os.path.join(root, names[0]), channels)
    if len(names) * math.prod(shape) > eager_bytes() if lazy is None else lazy:
        learnt, asked = (Pictures(root, part, shape, resized=size is not None) for part in (train, test))
        return learnt, asked
    files = [os.path.join(root, name) for name in names]
    images = decode_all(files, read_bytes, size=size, channels=channels, title=f"Reading {root.name}")
    return images[: len(train)], images[len(train) :]


def subfolders(root: Path) -> list[str]:
    """The names of the folders of classes, sorted."""
    if not root.is_dir():
        raise DataError(f"There is no folder {root}; {LAYOUT}.")
    found = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise DataError(f"{root} has no folders of classes; {LAYOUT}.")
    return found


def files_in(root: Path, below: str) -> list[str]:
    """All files under a folder of the root, sorted, by their names from the root on; a million take seconds."""
    found, folders = [], [below]
    while folders:
        inside = folders.pop()
        where = root / inside
        if not where.is_dir():
            continue  # a class without test pictures
        with os.scandir(where) as entries:
            for entry in entries:
                name = os.path.join(inside, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif entry.is_file() and not entry.name.startswith("."):
                    found.append(name)
    return sorted(found)


def check_known(root: Path, part: str, found: Sequence[str], classes: Sequence[str]) -> None:
    """Nothing is asked about what cannot be learnt."""
    strange = sorted(set(found) - set(classes))
    if strange:
        raise DataError(
            f"{root / part} has the class {strange[0]!r}, which {root / 'train'} has not; "
            "add training pictures or remove it."
        )


def check_none_empty(root: Path, classes: Sequence[str], found: Sequence[Sequence[str]]) -> None:
    """A class that is never met would have a row of the head for nothing."""
    empty = [name for name, files in zip(classes, found, strict=True) if not files]
    if empty:
        raise DataError(f"{root / empty[0]} has no pictures; add some or remove the folder.")
