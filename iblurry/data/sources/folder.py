"""Picture files in folders: train/<class>/* and test/<class>/*."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from iblurry.data.dataset import Dataset, LabelledImages, mean_and_std
from iblurry.data.images import ImageStore, PictureFiles, decode_pictures, eager_bytes, read_bytes
from iblurry.data.picture import MODES, decode
from iblurry.errors import DataError, InputError

LAYOUT = "put pictures in train/<class>/ and test/<class>/ (or val/<class>/)"
MEASURED = 2000  # training pictures to take mean and std from; as many for few as for a million


def folder(path: Path, *, size: int | None = None, channels: int = 3, lazy: bool | None = None) -> Dataset:
    """Classes are the sorted names of the folders in train/; pictures come in the order of their file names.

    Pictures are decoded as iblurry.data.picture says, to RGB, or to grey with channels=1, and resized to (size, size);
    without a size they must all have the same one. They are decoded when they are read if lazy, or if lazy is not
    given and all of them take more than $IBLURRY_EAGER_BYTES (4 GiB); otherwise now. Mean and std are those of 2,000
    evenly spaced training pictures.
    """
    if not path.is_dir():
        raise DataError(f"There is no folder {path}; {LAYOUT} and give their parent.")
    tested = "test" if (path / "test").is_dir() else "val"
    classes = list_folders(path / "train")
    train, test = label_files(path, "train", classes), label_files(path, tested, classes)
    images = load_images(path, list(train), list(test), size=size, channels=channels, lazy=lazy)
    mean, std = mean_and_std(images[0], limit=MEASURED)
    return labelled_dataset(path.resolve().name, classes, images, train, test, mean, std)


def labelled_dataset(
    name: str,
    classes: Sequence[str],
    images: tuple[ImageStore, ImageStore],
    train: Mapping[str, int],
    test: Mapping[str, int],
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Dataset:
    """A data set of training and test images whose labels are known by file, in the order of the images."""
    trained, tested = (np.array(list(labels.values()), dtype=np.int64) for labels in (train, test))
    parts = LabelledImages(images[0], trained), LabelledImages(images[1], tested)
    return Dataset(name, tuple(classes), *parts, mean, std)


def load_images(
    root: Path, train: list[str], test: list[str], *, size: int | None, channels: int, lazy: bool | None
) -> tuple[ImageStore, ImageStore]:
    """Training and test images of one shape: decoded now, or (lazy) when they are read."""
    if channels not in MODES:
        raise InputError(f"channels={channels} is not possible; give 1 (grey) or 3 (colour).")
    if size is not None and size < 1:
        raise InputError(f"size={size} is not possible; give a number of pixels of at least 1.")
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


def list_folders(root: Path) -> list[str]:
    """The names of the folders of classes, sorted."""
    if not root.is_dir():
        raise DataError(f"There is no folder {root}; {LAYOUT}.")
    found = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise DataError(f"{root} has no folders of classes; {LAYOUT}.")
    return found


def list_files(root: Path, below: str) -> list[str]:
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


def label_files(root: Path, part: str, classes: Sequence[str]) -> dict[str, int]:
    """Label by file, class by class; a class that train/ has not is refused, and one of train/ without pictures."""
    unknown = sorted(set(list_folders(root / part)) - set(classes))
    if unknown:
        raise DataError(
            f"{root / part} has the class {unknown[0]!r}, which {root / 'train'} has not; "
            "add training pictures or remove it."
        )
    labels: dict[str, int] = {}
    for label, name in enumerate(classes):
        files = list_files(root, os.path.join(part, name))
        if part == "train" and not files:
            raise DataError(f"{root / part / name} has no pictures; add some or remove the folder.")
        labels |= dict.fromkeys(files, label)
    return labels
