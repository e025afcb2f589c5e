"""A data set: images as bytes, labels as positions in a list of class names, and the numbers to normalise by."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.images import ImageStore, PictureFiles
from iblurry.errors import InputError

CHANNELS = (1, 3)  # grey or colour: what tells (N, C, H, W) from (N, H, W, C)


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and their labels, row by row."""

    images: ImageStore  # (N, C, H, W) uint8: an array, or PictureFiles that stay on the disk
    labels: NDArray[np.int64]  # (N,), positions in Dataset.classes

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if len(images.shape) != 4 or images.dtype != np.uint8:
            raise InputError(
                f"Images must be uint8 of shape (N, C, H, W), not {images.dtype} of shape {images.shape}; "
                "Dataset.from_arrays converts other forms."
            )
        if labels.ndim != 1 or labels.dtype != np.int64:
            raise InputError(
                f"Labels must be int64 of shape (N,), not {labels.dtype} of shape {labels.shape}; "
                "Dataset.from_arrays converts other forms."
            )
        if len(images) != len(labels):
            raise InputError(f"There are {len(images)} images but {len(labels)} labels; give one label per image.")

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images of the same shape, over the same classes.

    Parameters
    ----------
    name : str
        Shown in tables and used in file names.
    classes : tuple of str
        Class names; a label is a position in it.
    train, test : LabelledImages
        At least one training image; `test` may be empty (nothing can be measured then).
    mean, std : tuple of float
        Per channel, of pixels scaled to [0, 1]; what images are normalised by.
    """

    name: str
    classes: tuple[str, ...]
    train: LabelledImages
    test: LabelledImages
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.train):
            raise InputError(f"The data set {self.name!r} has no training images; give at least one.")
        if len(set(self.classes)) != len(self.classes) or not all(self.classes):
            raise InputError(f"Class names must be different and not empty, not {', '.join(map(repr, self.classes))}.")
        if self.train.images.shape[1:] != self.test.images.shape[1:]:
            raise InputError(
                f"Training images are {self.train.images.shape[1:]} but test images {self.test.images.shape[1:]} "
                "(C, H, W); resize them to one shape."
            )
        if 0 in self.shape:
            raise InputError(f"Images must have at least one channel, row and column, not (C, H, W) = {self.shape}.")
        for part, held in (("training", self.train.labels), ("test", self.test.labels)):
            if len(held) and not 0 <= held.min() <= held.max() < len(self.classes):
                raise InputError(
                    f"The {part} labels run from {held.min()} to {held.max()}, "
                    f"but {len(self.classes)} classes allow 0 to {len(self.classes) - 1}."
                )
        _check_normalisation(self.mean, self.std, channels=self.shape[0])

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image: (C, H, W)."""
        _, channels, height, width = self.train.images.shape
        return channels, height, width

    def fingerprint(self) -> str:
        """A hex digest of all content: class names, shapes, labels, pixels, mean and std (not the data set's name).

        Pictures that stay on the disk count by their files' names, sizes and times, not by their pixels.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.classes, self.shape, len(self.train), len(self.test))).encode())
        digest.update(repr((tuple(map(float, self.mean)), tuple(map(float, self.std)))).encode())
        for part in (self.train, self.test):
            digest.update(np.ascontiguousarray(part.labels, dtype="<i8").data)
            images = part.images
            digest.update(
                images.stat_digest() if isinstance(images, PictureFiles) else np.ascontiguousarray(images).data
            )
        return digest.hexdigest()

    @classmethod
    def from_arrays(
        cls,
        train_images: Any,
        train_labels: Any,
        test_images: Any,
        test_labels: Any,
        *,
        name: str = "arrays",
        classes: Sequence[str] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        layout: str | None = None,
    ) -> Dataset:
        """A data set from whatever `np.asarray` takes: NumPy arrays, CPU tensors, lists.

        Parameters
        ----------
        train_images, test_images : array-like
            (N, H, W), (N, H, W, C) or (N, C, H, W), bytes or floats in [0, 1].
        train_labels, test_labels : array-like
            One integer or string per image. With `classes`, integers are positions in it and strings names in it.
        name : str, default "arrays"
        classes : sequence of str, optional
            Class names; the sorted distinct labels unless given.
        mean, std : sequence of float, optional
            Per channel, of pixels scaled to [0, 1]; measured on the training images unless given.
        layout : {"NCHW", "NHWC"}, optional
            Which axis holds the channels; found by its length of 1 or 3 unless given.

        Examples
        --------
        >>> data = Dataset.from_arrays(np.zeros((2, 4, 4)), ["cat", "ant"], np.ones((1, 4, 4)), ["cat"])
        >>> data.classes, data.shape, data.train.labels.tolist()
        (('ant', 'cat'), (1, 4, 4), [1, 0])
        """
        names, (train_at, test_at) = _label_positions(
            [_labels(train_labels, "training"), _labels(test_labels, "test")], classes=classes
        )
        train = LabelledImages(_images(train_images, "training", layout), train_at)
        test = LabelledImages(_images(test_images, "test", layout), test_at)
        if not len(train):
            raise InputError(f"The data set {name!r} has no training images; give at least one.")
        measured_mean, measured_std = mean_and_std(train.images) if mean is None or std is None else ((), ())
        return cls(
            name=name,
            classes=names,
            train=train,
            test=test,
            mean=measured_mean if mean is None else tuple(float(m) for m in mean),
            std=measured_std if std is None else tuple(float(s) for s in std),
        )


def mean_and_std(images: ImageStore, *, limit: int | None = None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels scaled to [0, 1]; a constant channel gets 1 to divide by.

    Of all images, or of `limit` of them, evenly spaced.
    """
    values = np.arange(256) / 255
    means, stds = [], []
    # from counts of the 256 values: exact, and no float copy of the images
    for counts in _count_values(images, min(len(images), limit or len(images))):
        share = counts / counts.sum()
        mean = float(share @ values)
        means.append(mean)
        stds.append(math.sqrt(float(share @ (values - mean) ** 2)) if np.count_nonzero(share) > 1 else 1.0)
    return tuple(means), tuple(stds)


def _count_values(images: ImageStore, used: int) -> NDArray[np.int64]:
    """(C, 256): how often each pixel value occurs in each channel."""
    rows = np.arange(used) * len(images) // used
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    for chunk in np.array_split(rows, -(-used // 256)):  # in chunks: counting takes eight bytes a pixel
        held = images[chunk]
        for channel in range(len(counts)):
            counts[channel] += np.bincount(held[:, channel].ravel(), minlength=256)
    return counts


def _images(given: Any, part: str, layout: str | None) -> NDArray[np.uint8]:
    images = _asarray(given, f"{part} images")
    if layout not in (None, "NCHW", "NHWC"):
        raise InputError(f"The layout {layout!r} is not known; give 'NCHW', 'NHWC' or None to find it by the channels.")
    if images.ndim not in (3, 4):
        raise InputError(f"The {part} images have shape {images.shape}; give (N, H, W), (N, H, W, C) or (N, C, H, W).")
    if images.ndim == 3:
        return _bytes(images[:, None], part)
    layout = layout or _layout(images.shape, part)
    return _bytes(images if layout == "NCHW" else images.transpose(0, 3, 1, 2), part)


def _layout(shape: tuple[int, ...], part: str) -> str:
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last:
        why = "both (N, C, H, W) and (N, H, W, C)" if first else "neither (N, C, H, W) nor (N, H, W, C)"
        raise InputError(
            f"The {part} images of shape {shape} read as {why} with 1 or 3 channels; say layout='NCHW' or 'NHWC'."
        )
    return "NCHW" if first else "NHWC"


def _bytes(images: NDArray[Any], part: str) -> NDArray[np.uint8]:
    if images.dtype == np.uint8:
        return np.ascontiguousarray(images)
    top = {"f": 1, "i": 255, "u": 255}.get(images.dtype.kind)
    if top is None:
        raise InputError(f"The {part} images are {images.dtype}; give bytes (uint8) or floats in [0, 1].")
    if images.size and not (images.min() >= 0 and images.max() <= top):  # written so that NaN is refused too
        raise InputError(
            f"The {part} images ({images.dtype}) run from {images.min()} to {images.max()}; "
            f"{images.dtype} images must lie in [0, {top}]: scale them first."
        )
    return np.ascontiguousarray(np.rint(images * (255 // top)).astype(np.uint8))


def _labels(given: Any, part: str) -> NDArray[Any]:
    labels = _asarray(given, f"{part} labels")
    if labels.size == 0:
        labels = labels.astype(np.int64).reshape(-1)
    elif labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    elif labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.flat):
        labels = labels.astype(str)
    if labels.ndim == 2 and labels.shape[1] == 1:  # a column, as some archives store labels
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise InputError(
            f"The {part} labels are {labels.dtype} of shape {labels.shape}; "
            "give one whole number or one string per image."
        )
    return labels


def _label_positions(
    parts: list[NDArray[Any]], *, classes: Sequence[str] | None
) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    kinds = {"str" if part.dtype.kind == "U" else "int" for part in parts if part.size}
    if len(kinds) > 1:
        raise InputError("The training and test labels are of two kinds, numbers and strings; give one kind.")
    if classes is not None and "str" not in kinds:
        return tuple(map(str, classes)), [part.astype(np.int64) for part in parts]
    known = np.unique(np.concatenate([part for part in parts if part.size] or parts))
    names = tuple(map(str, known.tolist() if classes is None else classes))
    position = {name: at for at, name in enumerate(names)}
    unknown = [name for name in map(str, known.tolist()) if name not in position]
    if unknown:
        raise InputError(f"The label {unknown[0]!r} is not among the classes {', '.join(names)}; add it or relabel.")
    at = np.array([position[str(name)] for name in known.tolist()], dtype=np.int64)
    return names, [at[np.searchsorted(known, part)] if part.size else np.empty(0, dtype=np.int64) for part in parts]


def _asarray(given: Any, what: str) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        # ragged lists, tensors on a GPU, tensors with gradients: NumPy's or torch's own words say which
        raise InputError(f"The {what} cannot become a NumPy array: {error}") from error


def _check_normalisation(mean: tuple[float, ...], std: tuple[float, ...], *, channels: int) -> None:
    if len(mean) != channels or len(std) != channels:
        raise InputError(f"Images with {channels} channels need {channels} means and stds, not {mean} and {std}.")
    if not all(map(math.isfinite, mean)) or not all(math.isfinite(s) and s > 0 for s in std):
        raise InputError(f"Means must be finite and stds positive, not {mean} and {std}.")
