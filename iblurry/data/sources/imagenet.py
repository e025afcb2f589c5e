"""ImageNet (ILSVRC 2012, 1.28 million pictures in 1,000 classes) and Tiny ImageNet, in their original folders."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

from iblurry.data.dataset import Dataset
from iblurry.data.images import decode_pictures, load_images
from iblurry.data.sources.archive import Archive, open_archive
from iblurry.data.sources.folder import label_files, labelled_dataset, list_files, list_folders
from iblurry.errors import DataError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TINY_MEAN, TINY_STD = (0.4802, 0.4481, 0.3975), (0.2302, 0.2265, 0.2262)
TINY_CLASSES, TINY_TRAIN, TINY_TEST = 200, 500, 50  # training and test images per class
_INSIDE = Path("ILSVRC", "Data", "CLS-LOC")  # where the competition's archive has train and val
_LIST = "LOC_val_solution.csv"  # its list of the classes of val: ImageId,PredictionString


def imagenet(path: Path, *, size: int = 224, lazy: bool | None = None) -> Dataset:
    """Reads train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, or val/*.JPEG with LOC_val_solution.csv beside it or above.

    Classes are the sorted WordNet ids, pictures come in the order of their file names, and the test images are those of
    val. They are resized to (size, size), whatever their aspect; see `folder` for when they are decoded.

    O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 2015; its terms allow
    non-commercial research and education.
    """
    root = path / _INSIDE if (path / _INSIDE).is_dir() else path
    classes = list_folders(root / "train")
    train = label_files(root, "train", classes)
    has_folders = any(entry.is_dir() for entry in root.glob("val/*"))
    test = label_files(root, "val", classes) if has_folders else _val_by_list(path, root, classes)
    images = load_images(root, list(train), list(test), size=size, channels=3, lazy=lazy)
    return labelled_dataset("imagenet", classes, images, train, test, MEAN, STD)


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
    return labelled_dataset("tinyimagenet", classes, parts, train, test, TINY_MEAN, TINY_STD)


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
