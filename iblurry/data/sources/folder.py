"""Picture files in folders: train/<class>/* and test/<class>/*."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from iblurry.data.dataset import MEASURED, Dataset, LabelledImages, mean_and_std
from iblurry.data.images import ImageStore, load_images, read_bytes
from iblurry.data.picture import upright_size
from iblurry.errors import DataError, InputError
from iblurry.rng import Rng

_LAYOUT = "put pictures in train/<class>/ and test/<class>/ (or val/<class>/), or in <class>/ to have them split"
LARGEST_OWN, LARGEST_CHOSEN, LEAST_CHOSEN = 128, 64, 8  # pixels of a side


def folder(
    path: Path,
    *,
    size: int | None = None,
    channels: int = 3,
    lazy: bool | None = None,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Classes are the sorted names of the folders in train/; pictures come in the order of their file names.

    Without test/ and val/, `test` is the share of each class's pictures that are test images, drawn by `seed`; without
    train/, the folders of the classes are those in `path` itself.

    Pictures are decoded as iblurry.data.picture says, to RGB, or to grey with channels=1, and resized to (size, size).
    Without a size they keep their own if all have the same, of up to 128 pixels a side; otherwise it is the median of
    their shorter sides, from 8 to 64 pixels. They are decoded when they are read if lazy, or if lazy is not given and
    all of them take more than $IBLURRY_EAGER_BYTES (4 GiB); otherwise now. Mean and std are those of 2,000 evenly
    spaced training pictures.

    Links are followed. The data set's `notes` say what was chosen, left out or lies behind links.
    """
    if not path.is_dir():
        raise DataError(f"There is no folder {path}; {_LAYOUT} and give their parent.")
    if not 0 <= test < 1:
        raise InputError(f"test={test} is not a fraction of the pictures; give a number from 0 to below 1.")
    trained = "train" if any(entry.is_dir() for entry in path.glob("train/*")) else ""
    tested = next((part for part in ("test", "val") if trained and (path / part).is_dir()), None)
    notes: list[str] = []
    classes = list_folders(path / trained, notes)
    train = label_files(path, trained, classes)
    if tested is not None:
        held_out = label_files(path, tested, classes)
    else:
        held_out = _draw_test(train, test, seed)
        train = {name: label for name, label in train.items() if name not in held_out}
        several = f"{len(held_out)} of {len(train) + len(held_out)} pictures"
        notes.append(f"{several} are the test images, drawn by a seed; {path},test=0.3,seed=1 draws others.")
    files = [*train, *held_out]
    if outside := _links_out(path, files):
        notes.append(f"{len(outside)} pictures are behind links that lead out of the folder, such as {outside[0]!r}.")
    if size is None and (size := _choose_size(path, files)) is not None:
        notes.append(f"The pictures are resized to {size} x {size}; {path},size=N sets another size.")
    images = load_images(path, list(train), list(held_out), size=size, channels=channels, lazy=lazy)
    mean, std = mean_and_std(images[0], limit=MEASURED)
    made = labelled_dataset(path.resolve().name, classes, images, train, held_out, mean, std)
    return replace(made, notes=tuple(notes))


def _draw_test(labels: Mapping[str, int], share: float, seed: int) -> dict[str, int]:
    """A share of each class's files: at least one of two, and never all."""
    drawn: dict[str, int] = {}
    for label, group in groupby(labels, labels.__getitem__):
        files = list(group)
        count = min(max(round(share * len(files)), share > 0), len(files) - 1)
        order = Rng(seed).permutation("folder.test", label, len(files))
        drawn |= dict.fromkeys((files[row] for row in sorted(order[:count].tolist())), label)
    return drawn


def _links_out(root: Path, names: Sequence[str]) -> list[str]:
    """The files that lie outside of the folder, behind links."""
    inside = os.path.join(os.path.realpath(root), "")
    return [name for name in names if not os.path.realpath(os.path.join(root, name)).startswith(inside)]


def _choose_size(root: Path, names: Sequence[str]) -> int | None:
    """The side to resize to; None where all pictures have one size that is not large (of 2,000, evenly spaced)."""
    rows = np.unique(np.linspace(0, len(names) - 1, MEASURED).astype(int)).tolist()
    files = [os.path.join(root, names[row]) for row in rows]
    sizes = np.array([upright_size(read_bytes(file), file) for file in files])
    if (sizes == sizes[0]).all() and sizes.max() <= LARGEST_OWN:
        return None
    return int(np.median(sizes.min(axis=1)).clip(LEAST_CHOSEN, LARGEST_CHOSEN))


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


def list_folders(root: Path, notes: list[str] | None = None) -> list[str]:
    """The names of the folders of classes, sorted; a note tells of hidden ones, which are left out."""
    if not root.is_dir():
        raise DataError(f"There is no folder {root}; {_LAYOUT}.")
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    hidden = [name for name in names if name.startswith(".")]
    if notes is not None and hidden:
        notes.append(f"Hidden folders are left out: {', '.join(map(repr, hidden))}; rename those that are classes.")
    if len(hidden) == len(names):
        raise DataError(f"{root} has no folders of classes; {_LAYOUT}.")
    return [name for name in names if name not in hidden]


def list_files(root: Path, below: str) -> list[str]:
    """All files under a folder of the root, sorted, by their names from the root on; a million take seconds.

    A folder behind a link is listed once.
    """
    found, folders, linked = [], [below], {os.path.realpath(root / below)}
    while folders:
        inside = folders.pop()
        where = root / inside
        if not where.is_dir():
            continue  # a class without test pictures
        with os.scandir(where) as entries:
            for entry in entries:
                name = os.path.join(inside, entry.name)
                if entry.is_dir():
                    if not entry.is_symlink() or (place := os.path.realpath(entry)) not in linked:
                        folders.append(name)
                        linked |= {place} if entry.is_symlink() else set()
                elif entry.is_file() and not entry.name.startswith("."):
                    found.append(name)
    return sorted(found)


def label_files(root: Path, part: str, classes: Sequence[str]) -> dict[str, int]:
    """Label by file, class by class; DataError for a class that is not in train/, or is there without pictures."""
    unknown = sorted(set(list_folders(root / part)) - set(classes))
    if unknown:
        raise DataError(
            f"{root / part} has the class {unknown[0]!r}, which is not in {root / 'train'}; "
            "add training pictures or remove it."
        )
    labels: dict[str, int] = {}
    for label, name in enumerate(classes):
        files = list_files(root, os.path.join(part, name))
        if part in ("train", "") and not files:
            raise DataError(f"{root / part / name} has no pictures; add some or remove the folder.")
        labels |= dict.fromkeys(files, label)
    return labels
