"""Picture files in folders: train/<class>/* and test/<class>/* of any data set; ImageNet, Tiny ImageNet and CORe50."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from iblurry.data.dataset import MEASURED, Dataset, LabelledImages, mean_and_std
from iblurry.data.images import ImageStore, decode_pictures, load_images, read_bytes
from iblurry.data.picture import upright_size
from iblurry.data.sources.archive import Archive, open_archive
from iblurry.errors import DataError, InputError
from iblurry.rng import Rng

_LAYOUT = "put pictures in train/<class>/ and test/<class>/ (or val/<class>/), or in <class>/ to have them split"
_LARGEST_OWN, _LARGEST_CHOSEN, _LEAST_CHOSEN = 128, 64, 8  # pixels of a side
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_TINY_MEAN, _TINY_STD = (0.4802, 0.4481, 0.3975), (0.2302, 0.2265, 0.2262)
TINY_CLASSES, TINY_TRAIN, TINY_TEST = 200, 500, 50  # training and test images per class
_INSIDE = Path("ILSVRC", "Data", "CLS-LOC")  # where the competition's archive has train and val
_LIST = "LOC_val_solution.csv"  # its list of the classes of val: ImageId,PredictionString
_CATEGORIES = (
    "plug adapter", "mobile phone", "scissors", "light bulb", "can", "glasses", "ball", "marker", "cup",
    "remote control",
)  # fmt: skip
_EACH = 5  # objects of a category
_TEST_SESSIONS = (3, 7, 10)
CORE50_TRAIN, CORE50_TEST = 119_894, 44_972


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
    classes = _list_folders(path / trained, notes)
    train = _label_files(path, trained, classes)
    if tested is not None:
        held_out = _label_files(path, tested, classes)
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
    made = _labelled_dataset(path.resolve().name, classes, images, train, held_out, mean, std)
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
    if (sizes == sizes[0]).all() and sizes.max() <= _LARGEST_OWN:
        return None
    return int(np.median(sizes.min(axis=1)).clip(_LEAST_CHOSEN, _LARGEST_CHOSEN))


def _labelled_dataset(
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


def _list_folders(root: Path, notes: list[str] | None = None) -> list[str]:
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


def _label_files(root: Path, part: str, classes: Sequence[str]) -> dict[str, int]:
    """Label by file, class by class; DataError for a class that is not in train/, or is there without pictures."""
    unknown = sorted(set(_list_folders(root / part)) - set(classes))
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


def imagenet(path: Path, *, size: int = 224, lazy: bool | None = None) -> Dataset:
    """Reads train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, or val/*.JPEG with LOC_val_solution.csv beside it or above.

    Classes are the sorted WordNet ids, pictures come in the order of their file names, and the test images are those of
    val. They are resized to (size, size), whatever their aspect; see `folder` for when they are decoded.

    O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 2015; its terms allow
    non-commercial research and education.
    """
    root = path / _INSIDE if (path / _INSIDE).is_dir() else path
    classes = _list_folders(root / "train")
    train = _label_files(root, "train", classes)
    has_folders = any(entry.is_dir() for entry in root.glob("val/*"))
    test = _label_files(root, "val", classes) if has_folders else _val_by_list(path, root, classes)
    images = load_images(root, list(train), list(test), size=size, channels=3, lazy=lazy)
    return _labelled_dataset("imagenet", classes, images, train, test, _MEAN, _STD)


def _val_by_list(path: Path, root: Path, classes: list[str]) -> dict[str, int]:
    """Label by file, where val is as it was published: all pictures in one folder, their classes in a list."""
    files = list_files(root, "val")
    lists = [place / _LIST for place in (path, root, root / "val") if (place / _LIST).is_file()]
    if not lists:
        raise DataError(
            f"{root / 'val'} has no folders of the classes in train and there is no {_LIST} with it; sort its pictures "
            f"into folders val/<wnid>/, or put {_LIST} into {path}."
        )
    label_of_class = {wnid: label for label, wnid in enumerate(classes)}
    with lists[0].open(newline="", encoding="utf-8", errors="replace") as file:
        wnid_of = {line[0]: line[1].partition(" ")[0] for line in csv.reader(file) if len(line) == 2}
    labels = {}
    for name in files:
        wnid = wnid_of.get(Path(name).stem)
        if Path(name).suffix.upper() in (".JPEG", ".JPG"):
            if wnid not in label_of_class:
                raise DataError(f"{lists[0]} gives {name} the class {wnid!r}, which is not in train; get it again.")
            labels[name] = label_of_class[wnid]
    return labels


def tinyimagenet(path: Path) -> Dataset:
    """Reads the folder tiny-imagenet-200 or its zip; the test images are those of val/, whose labels are public.

    Classes are the sorted WordNet ids. Training images come class by class in the order of their numbers, so image i of
    class c is row 500 c + i; test images come in the order of theirs.

    Y. Le and X. Yang, "Tiny ImageNet Visual Recognition Challenge", CS231N report, 2015; the terms of ImageNet.
    """
    with open_archive(path) as files:
        classes = sorted(files.read_base("wnids.txt").decode("utf-8", errors="replace").split())
        label_of_class = {name: at for at, name in enumerate(classes)}
        train = _tiny_train(files, label_of_class)
        test = _tiny_test(files, label_of_class)
        _check_tiny_counts(path, classes, train, test)
        names = list(train) + list(test)
        images = decode_pictures(names, files.read, (3, 64, 64), resized=True, title="Reading Tiny ImageNet")
    parts = (images[: len(train)], images[len(train) :])
    return _labelled_dataset("tinyimagenet", classes, parts, train, test, _TINY_MEAN, _TINY_STD)


def _tiny_train(files: Archive, label_of_class: dict[str, int]) -> dict[str, int]:
    """Label by name, in the order of (class, number)."""
    found = []
    for name in files.names:
        match = re.search(r"(?:^|/)train/(n\d+)/images/\1_(\d+)\.JPEG$", name)
        if match and match[1] in label_of_class:
            found.append((label_of_class[match[1]], int(match[2]), name))
    return {name: label for label, _, name in sorted(found)}


def _tiny_test(files: Archive, label_of_class: dict[str, int]) -> dict[str, int]:
    """Label by name, in the order of the numbers; each line of the annotations is file, class and a box."""
    label_of = {}
    for line in files.read_base("val_annotations.txt").decode("utf-8", errors="replace").splitlines():
        file, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in label_of_class:
            raise DataError(
                f"val_annotations.txt in {files.path} has the class {wnid!r}, which is not in wnids.txt; get it again."
            )
        label_of[file] = label_of_class[wnid]
    found = []
    for name in files.names:
        match = re.search(r"(?:^|/)val/images/(val_(\d+)\.JPEG)$", name)
        if match and match[1] in label_of:
            found.append((int(match[2]), name, label_of[match[1]]))
    return {name: label for _, name, label in sorted(found)}


def _check_tiny_counts(path: Path, classes: list[str], train: dict[str, int], test: dict[str, int]) -> None:
    if len(classes) != TINY_CLASSES:
        raise DataError(f"wnids.txt in {path} lists {len(classes)} classes, not {TINY_CLASSES}; get it again.")
    for part, held, expected in (("training", train, TINY_TRAIN), ("val", test, TINY_TEST)):
        counts = np.bincount(list(held.values()), minlength=TINY_CLASSES)
        short = np.flatnonzero(counts != expected)
        if len(short):
            raise DataError(
                f"{path} has {counts[short[0]]} {part} images of class {classes[short[0]]}, not {expected} "
                f"({len(short)} classes differ); the copy is incomplete, so unpack or download it again."
            )


def core50(path: Path, *, size: int = 128, objects: bool = True, lazy: bool | None = None) -> Dataset:
    """Reads s<session>/o<object>/*.png as core50_128x128.zip (or core50_350x350.zip) unpacks; classes are the objects.

    With objects=false they are the ten categories. The test images are those of sessions 3, 7 and 10, the training
    images come session by session, and all are resized to (size, size); see `folder` for when they are decoded.

    V. Lomonaco and D. Maltoni, "CORe50: a New Dataset and Benchmark for Continuous Object Recognition", CoRL 2017;
    CC BY 4.0.
    """
    parts: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for name in sorted(list_files(path, ""), key=os.path.basename):
        if found := re.search(r"(?:^|/)s(\d+)/o(\d+)/[^/]*\.png$", name):
            label = int(found[2]) - 1
            parts[int(found[1]) in _TEST_SESSIONS][name] = label if objects else label // _EACH
    train, test = parts
    if (len(train), len(test)) != (CORE50_TRAIN, CORE50_TEST):
        raise DataError(
            f"{path} holds {len(train):,} training and {len(test):,} test images s<session>/o<object>/*.png, not "
            f"{CORE50_TRAIN:,} and {CORE50_TEST:,}; unpack core50_128x128.zip and give its folder."
        )
    images = load_images(path, list(train), list(test), size=size, channels=3, lazy=lazy)
    classes = [f"{kind} {number}" for kind in _CATEGORIES for number in range(1, _EACH + 1)] if objects else _CATEGORIES
    return _labelled_dataset("core50", classes, images, train, test, *mean_and_std(images[0], limit=MEASURED))
