"""CORe50: 164,866 photographs of 50 objects in 10 categories, filmed in 11 sessions."""

from __future__ import annotations

import os
import re
from pathlib import Path

from iblurry.data.dataset import MEASURED, Dataset, mean_and_std
from iblurry.data.images import load_images
from iblurry.data.sources.folder import labelled_dataset, list_files
from iblurry.errors import DataError

_CATEGORIES = (
    "plug adapter", "mobile phone", "scissors", "light bulb", "can", "glasses", "ball", "marker", "cup",
    "remote control",
)  # fmt: skip
_EACH = 5  # objects of a category
_TEST_SESSIONS = (3, 7, 10)
TRAIN, TEST = 119_894, 44_972


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
    if (len(train), len(test)) != (TRAIN, TEST):
        raise DataError(
            f"{path} holds {len(train):,} training and {len(test):,} test images s<session>/o<object>/*.png, not "
            f"{TRAIN:,} and {TEST:,}; unpack core50_128x128.zip and give its folder."
        )
    images = load_images(path, list(train), list(test), size=size, channels=3, lazy=lazy)
    classes = [f"{kind} {number}" for kind in _CATEGORIES for number in range(1, _EACH + 1)] if objects else _CATEGORIES
    return labelled_dataset("core50", classes, images, train, test, *mean_and_std(images[0], limit=MEASURED))
