"""Published sets of small images: MNIST and Fashion-MNIST (28 x 28, grey, idx files), SVHN (32 x 32, .mat files)."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.data.sources.archive import Archive, open_archive
from iblurry.data.sources.digits import NAMES
from iblurry.errors import DataError

_CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def mnist(path: Path) -> Dataset:
    """Reads the folder (or archive) of the four files, compressed by gzip or not.

    Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-Based Learning Applied to Document Recognition", Proc. IEEE
    86(11), 1998; no licence is stated.
    """
    return _read_idx(path, "mnist", NAMES)


def fashion_mnist(path: Path) -> Dataset:
    """Reads the folder (or archive) of the four files, compressed by gzip or not.

    H. Xiao, K. Rasul and R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
    Algorithms", arXiv:1708.07747, 2017; MIT licence.
    """
    return _read_idx(path, "fashion_mnist", _CLOTHES)


def _read_idx(path: Path, name: str, classes: tuple[str, ...]) -> Dataset:
    with open_archive(path) as files:
        x_train, y_train, x_test, y_test = (_idx(files, name) for name in FILES)
    for images, labels, part in ((x_train, y_train, "training"), (x_test, y_test, "test")):
        if len(images) != len(labels):
            raise DataError(
                f"{path} has {len(images)} {part} images but {len(labels)} labels; the files do not belong together, "
                "so download them again."
            )
    return Dataset.from_arrays(x_train, y_train, x_test, y_test, name=name, classes=classes)


def _idx(files: Archive, name: str) -> NDArray[np.uint8]:
    """One array of bytes: 0, 0, 8 (bytes), number of axes, the length of each axis (big-endian), then the values."""
    packed = not files.has(name)
    raw = files.read_base(f"{name}.gz" if packed else name)
    if packed:
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{name}.gz in {files.path} is cut short or damaged ({error}); get it again.") from error
    axes = 3 if "idx3" in name else 1
    start = 4 + 4 * axes
    if raw[:4] != bytes((0, 0, 8, axes)) or len(raw) < start:
        raise DataError(
            f"{name} in {files.path} starts with {raw[:4].hex()}, not {bytes((0, 0, 8, axes)).hex()} as an idx file "
            f"of bytes with {axes} axes does; get it again."
        )
    shape = struct.unpack(f">{axes}I", raw[4:start])
    if len(raw) - start != int(np.prod(shape)):
        raise DataError(
            f"{name} in {files.path} should hold {shape} bytes but holds {len(raw) - start}; it is cut short or "
            "damaged, so get it again."
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def svhn(path: Path) -> Dataset:
    """Reads the folder (or archive) of train_32x32.mat and test_32x32.mat; their label 10 is the digit 0.

    Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu and A. Y. Ng, "Reading Digits in Natural Images with Unsupervised
    Feature Learning", NIPS workshop, 2011; for non-commercial use.
    """
    with open_archive(path) as files:
        train, test = (_mat(files, f"{part}_32x32.mat") for part in ("train", "test"))
    return Dataset.from_arrays(*train, *test, name="svhn", classes=NAMES)


def _mat(files: Archive, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
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
