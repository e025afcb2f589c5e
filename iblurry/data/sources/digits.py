"""The UCI handwritten digits: 1,797 grey images of 8 x 8 pixels, shipped with the package."""

from __future__ import annotations

from importlib import resources

import numpy as np

from iblurry.data.dataset import Dataset

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TRAINED = 140  # images of each class


def digits() -> Dataset:
    """140 training images of each class, so that tasks are equally long; the others, spread evenly, are test images.

    E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998,
    doi 10.24432/C50P49, CC BY 4.0; see files/README.md.

    >>> data = digits()
    >>> data.shape, len(data.train), len(data.test)
    ((1, 8, 8), 1400, 397)
    """
    file = resources.files("iblurry.data.sources").joinpath("files", "digits.npz")
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
        images, labels = stored["images"], stored["labels"]  # (1797, 8, 8) uint8, (1797,) uint8
    test = np.zeros(len(labels), dtype=bool)
    for digit in range(len(NAMES)):
        rows = np.flatnonzero(labels == digit)
        left = len(rows) - _TRAINED
        test[rows[(2 * np.arange(left) + 1) * len(rows) // (2 * left)]] = True  # the middles of `left` equal stretches
    return Dataset.from_arrays(images[~test], labels[~test], images[test], labels[test], name="digits", classes=NAMES)
