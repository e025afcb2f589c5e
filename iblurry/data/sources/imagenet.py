"""ImageNet (ILSVRC 2012): 1.28 million colour pictures in 1,000 classes, in its original folders."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from iblurry.data.dataset import Dataset, Labelled
from iblurry.data.sources.folder import check_known, check_none_empty, files_in, images_of, subfolders
from iblurry.errors import DataError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INSIDE = Path("ILSVRC", "Data", "CLS-LOC")  # where the competition's archive has train and val
LIST = "LOC_val_solution.csv"  # its list of the classes of val: ImageId,PredictionString


def imagenet(path: Path, *, size: int = 224, lazy: bool | None = None) -> Dataset:
    """Reads train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, or val/*.JPEG with LOC_val_solution.csv beside it or above.

    Classes are the sorted WordNet ids, pictures come in the order of their file names, and the test images are those of
    val. They are resized to (size, size), whatever their aspect; see `folder` for when they are decoded.

    O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 2015.
    """
    root = path / INSIDE if (path / INSIDE).is_dir() else path
    classes = subfolders(root / "train")
    train = [files_in(root, os.path.join("train", name)) for name in classes]
    check_none_empty(root / "train", classes, train)
    by_class = [entry.name for entry in root.glob("val/*") if entry.is_dir()]
    check_known(root, "val", by_class, classes)
    test = _sorted_val(root, classes) if by_class else _flat_val(path, root, classes)
    labels = np.repeat(np.arange(len(classes)), [len(found) for found in train])
    names = [name for found in train for name in found]
    learnt, asked = images_of(root, names, list(test), size=size, channels=3, lazy=lazy)
    return Dataset(
        name="imagenet",
        classes=tuple(classes),
        train=Labelled(learnt, labels),
        test=Labelled(asked, np.array(list(test.values()), dtype=np.int64)),
        mean=MEAN,
        std=STD,
    )


def _sorted_val(root: Path, classes: list[str]) -> dict[str, int]:
    """Label by file, where val has a folder for each class."""
    return {name: label for label, wnid in enumerate(classes) for name in files_in(root, os.path.join("val", wnid))}


def _flat_val(path: Path, root: Path, classes: list[str]) -> dict[str, int]:
    """Label by file, where val is as it was published: all pictures in one folder, their classes in a list."""
    files = files_in(root, "val")
    lists = [place / LIST for place in (path, root, root / "val") if (place / LIST).is_file()]
    if not lists:
        raise DataError(
            f"{root / 'val'} has no folders of the classes in train and there is no {LIST} with it; sort its pictures "
            f"into folders val/<wnid>/, or put {LIST} into {path}."
        )
    place = {wnid: label for label, wnid in enumerate(classes)}
    with lists[0].open(newline="", encoding="utf-8", errors="replace") as file:
        wnid_of = {line[0]: line[1].partition(" ")[0] for line in csv.reader(file) if len(line) == 2}
    labels = {}
    for name in files:
        wnid = wnid_of.get(Path(name).stem)
        if Path(name).suffix.upper() in (".JPEG", ".JPG"):
            if wnid not in place:
                raise DataError(f"{lists[0]} gives {name} the class {wnid!r}, which train has not; get it again.")
            labels[name] = place[wnid]
    return labels
