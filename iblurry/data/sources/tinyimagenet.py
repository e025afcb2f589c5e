"""Tiny ImageNet: 110,000 colour images of 64 x 64 pixels in 200 classes, in its original folders."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from iblurry.data.dataset import Dataset, Labelled
from iblurry.data.sources.bundle import Bundle, open_bundle
from iblurry.data.sources.decoding import decode_all
from iblurry.errors import DataError

CLASSES, TRAIN, TEST = 200, 500, 50  # the counts are per class
MEAN, STD = (0.4802, 0.4481, 0.3975), (0.2302, 0.2265, 0.2262)


def tinyimagenet(path: Path) -> Dataset:
    """Reads the folder tiny-imagenet-200 or its zip; the test images are those of val/, whose labels are public.

    Classes are the sorted WordNet ids. Training images come class by class in the order of their numbers, so image i of
    class c is row 500 c + i; test images come in the order of theirs.

    Y. Le and X. Yang, "Tiny ImageNet Visual Recognition Challenge", CS231N report, 2015.
    """
    with open_bundle(path) as files:
        classes = sorted(files.find("wnids.txt").decode("utf-8", errors="replace").split())
        place = {name: at for at, name in enumerate(classes)}
        train = _train(files, place)
        test = _test(files, place)
        _check_counts(path, classes, train, test)
        names = list(train) + list(test)
        images = decode_all(names, files.read, size=64, channels=3, title="Reading Tiny ImageNet")
    end = len(train)
    return Dataset(
        name="tinyimagenet",
        classes=tuple(classes),
        train=Labelled(images[:end], np.array(list(train.values()), dtype=np.int64)),
        test=Labelled(images[end:], np.array(list(test.values()), dtype=np.int64)),
        mean=MEAN,
        std=STD,
    )


def _train(files: Bundle, place: dict[str, int]) -> dict[str, int]:
    """Label by name, in the order of (class, number)."""
    found = []
    for name in files.names:
        match = re.search(r"(?:^|/)train/(n\d+)/images/\1_(\d+)\.JPEG$", name)
        if match and match[1] in place:
            found.append((place[match[1]], int(match[2]), name))
    return {name: label for label, _, name in sorted(found)}


def _test(files: Bundle, place: dict[str, int]) -> dict[str, int]:
    """Label by name, in the order of the numbers; each line of the annotations is file, class and a box."""
    label_of = {}
    for line in files.find("val_annotations.txt").decode("utf-8", errors="replace").splitlines():
        file, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in place:
            raise DataError(
                f"val_annotations.txt in {files.path} names the class {wnid!r}, which wnids.txt has not; get it again."
            )
        label_of[file] = place[wnid]
    found = []
    for name in files.names:
        match = re.search(r"(?:^|/)val/images/(val_(\d+)\.JPEG)$", name)
        if match and match[1] in label_of:
            found.append((int(match[2]), name, label_of[match[1]]))
    return {name: label for _, name, label in sorted(found)}


def _check_counts(path: Path, classes: list[str], train: dict[str, int], test: dict[str, int]) -> None:
    if len(classes) != CLASSES:
        raise DataError(f"wnids.txt in {path} lists {len(classes)} classes, not {CLASSES}; get it again.")
    for part, held, expected in (("training", train, TRAIN), ("val", test, TEST)):
        counts = np.bincount(list(held.values()), minlength=CLASSES)
        short = np.flatnonzero(counts != expected)
        if len(short):
            raise DataError(
                f"{path} has {counts[short[0]]} {part} images of class {classes[short[0]]}, not {expected} "
                f"({len(short)} classes differ); the copy is incomplete, so unpack or download it again."
            )
