"""The UCI handwritten digits: 1,797 grey images of 8 x 8 pixels, shipped with the package."""

from __future__ import annotations

from importlib import resources

import numpy as np

from iblurry.data.dataset import Dataset

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digits() -> Dataset:
    """Every fifth image of each class is a test image, so the split is the same everywhere.

    E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998,
    doi 10.24432/C50P49, CC BY 4.0; see files/README.md.

    >>> data = digits()
    >>> data.shape, len(data.train), len(data.test)
    ((1, 8, 8), 1442, 355)
    """
    file = resources.files("iblurry.data.sources").joinpath("files", "digits.npz")
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
        images, labels = stored["images"], stored["labels"]  # (1797, 8, 8) uint8, (1797,) uint8
    turn = np.empty(len(labels), dtype=np.int64)  # how many of its class came before
    for digit in range(len(NAMES)):
        rows = np.flatnonzero(labels == digit)
        turn[rows] = np.arange(len(rows))
    test = turn % 5 == 4
    return Dataset.from_arrays(images[~test], labels[~test], images[test], labels[test], name="digits", classes=NAMES)
