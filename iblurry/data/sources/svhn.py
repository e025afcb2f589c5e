"""SVHN: 99,289 cropped house numbers, colour pictures of 32 x 32 pixels, in two MATLAB files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.data.sources.archive import Archive, open_archive
from iblurry.data.sources.digits import NAMES
from iblurry.errors import DataError


def svhn(path: Path) -> Dataset:
    """Reads the folder (or archive) of train_32x32.mat and test_32x32.mat; their label 10 is the digit 0.

    Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu and A. Y. Ng, "Reading Digits in Natural Images with Unsupervised
    Feature Learning", NIPS workshop, 2011; for non-commercial use.
    """
    with open_archive(path) as files:
        train, test = (_read(files, f"{part}_32x32.mat") for part in ("train", "test"))
    return Dataset.from_arrays(*train, *test, name="svhn", classes=NAMES)


def _read(files: Archive, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(N, 3, 32, 32), (N,)."""
    from scipy.io import loadmat

    raw = files.read_base(name)
    try:
        held = loadmat(io.BytesIO(raw), variable_names=("X", "y"))
        pixels, labels = held["X"].transpose(3, 2, 0, 1), held["y"].astype(np.int64).ravel()
    except Exception as error:  # a damaged file can raise anything at all
        raise DataError(f"{name} in {files.path} is not a readable .mat file with X and y; get it again.") from error
    fits = pixels.dtype == np.uint8 and pixels.shape == (len(labels), 3, 32, 32)
    if not fits or not {*labels.tolist()} <= {*range(1, 11)}:
        raise DataError(
            f"{name} in {files.path} has no bytes X (32, 32, 3, N) with N labels y of 1 to 10; get it again."
        )
    return pixels, labels % 10
