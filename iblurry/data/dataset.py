"""A data set: images as bytes, labels as positions in a list of class names, and the numbers to normalise by."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.convert import (
    LabelledRows,
    dataframe_rows,
    huggingface_rows,
    label_positions,
    name_labels,
    read_rows,
    to_floats,
    to_images,
    to_labels,
    torch_rows,
)
from iblurry.data.images import ImageStore, PictureFiles
from iblurry.data.labels import class_labels
from iblurry.errors import InputError

MEASURED = 2000  # training pictures to take mean and std from; as many for few as for a million


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
        Class names in Unicode's form NFC, without characters that cannot be seen; a label is a position in it.
    train, test : LabelledImages
        At least one training image; `test` may be empty (nothing can be measured then).
    mean, std : tuple of float
        Mean and standard deviation per channel, of pixels scaled to [0, 1]; images are normalised with them.
    notes : tuple of str
        What the reader chose or left out, in sentences; not part of the fingerprint.
    """

    name: str
    classes: tuple[str, ...]
    train: LabelledImages
    test: LabelledImages
    mean: tuple[float, ...]
    std: tuple[float, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"name={self.name!r} is not the name of a data set; give a string.")
        if not len(self.train):
            raise InputError(f"The data set {self.name!r} has no training images; give at least one.")
        object.__setattr__(self, "classes", class_labels(self.classes))
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
        """The shape of one image, (C, H, W)."""
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
        names, (train_at, test_at) = label_positions(
            [to_labels(train_labels, "training"), to_labels(test_labels, "test")], classes=classes
        )
        train = LabelledImages(to_images(train_images, "training images", layout), train_at)
        test = LabelledImages(to_images(test_images, "test images", layout), test_at)
        if not len(train):
            raise InputError(f"The data set {name!r} has no training images; give at least one.")
        measured_mean, measured_std = mean_and_std(train.images) if mean is None or std is None else ((), ())
        return cls(
            name=name,
            classes=names,
            train=train,
            test=test,
            mean=measured_mean if mean is None else to_floats(mean, "mean"),
            std=measured_std if std is None else to_floats(std, "std"),
        )

    @classmethod
    def from_torch(
        cls,
        train: Any,
        test: Any,
        *,
        name: str = "torch",
        classes: Sequence[str] | None = None,
        size: int | None = None,
        channels: int | None = None,
        layout: str | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> Dataset:
        """A data set from two map-style torch data sets of (image, label), each read once; None for no test images.

        Parameters
        ----------
        train, test : torch.utils.data.Dataset
            Images are pictures of Pillow, or tensors or arrays, bytes or floats in [0, 1], without random transforms;
            labels are whole numbers or strings. Class names are those of its attribute `classes`, if it has one.
        name : str, default "torch"
        classes : sequence of str, optional
            Class names; those of `train` unless given, or the sorted distinct labels where it has none.
        size : int, optional
            Side in pixels of the square that images are resized to; without it all must have one size.
        channels : {1, 3}, optional
            Grey or colour; unless given, 1 if all images are grey and 3 otherwise.
        layout : {"NCHW", "NHWC"}, optional
            Which axis of arrays holds the channels; found by its length of 1 or 3 unless given.
        mean, std : sequence of float, optional
            Per channel, of pixels scaled to [0, 1]; measured on training images unless given.

        Examples
        --------
        >>> pairs = [(np.full((4, 4), shade, dtype=np.uint8), shade % 2) for shade in range(6)]
        >>> data = Dataset.from_torch(pairs[:4], pairs[4:], classes=["even", "odd"])
        >>> data.shape, data.train.labels.tolist()
        ((1, 4, 4), [0, 1, 0, 1])
        """
        parts = torch_rows(train, "training"), torch_rows(test, "test")
        own: dict[str, Any] = {"name": name, "classes": classes, "mean": mean, "std": std}
        return cls._from_rows(*parts, **own, size=size, channels=channels, layout=layout)

    @classmethod
    def from_huggingface(
        cls,
        train: Any,
        test: Any,
        *,
        image: str = "image",
        label: str = "label",
        name: str = "huggingface",
        classes: Sequence[str] | None = None,
        size: int | None = None,
        channels: int | None = None,
        layout: str | None = None,
        lazy: bool | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> Dataset:
        """A data set from two splits of a Hugging Face data set; None for no test images.

        Parameters
        ----------
        train, test : datasets.Dataset
            Class names are those of the ClassLabel, if the labels are one.
        image, label : str, default "image" and "label"
            The columns to read.
        name : str, default "huggingface"
        classes : sequence of str, optional
            Class names; those of `train` unless given, or the sorted distinct labels where it has none.
        size : int, optional
            Side in pixels of the square that images are resized to; without it all must have one size.
        channels : {1, 3}, optional
            Grey or colour; unless given, 1 if all images are grey and 3 otherwise (3 for files).
        layout : {"NCHW", "NHWC"}, optional
            Which axis of arrays holds the channels; found by its length of 1 or 3 unless given.
        lazy : bool, optional
            Whether pictures given by path are decoded when they are read; unless given, where all of them take more
            than $IBLURRY_EAGER_BYTES (4 GiB).
        mean, std : sequence of float, optional
            Per channel, of pixels scaled to [0, 1]; measured on training images unless given.
        """
        trained = huggingface_rows(train, "training", image=image, label=label)
        tested = huggingface_rows(test, "test", image=image, label=label)
        own: dict[str, Any] = {"name": name, "classes": classes, "mean": mean, "std": std}
        return cls._from_rows(trained, tested, **own, size=size, channels=channels, layout=layout, lazy=lazy)

    @classmethod
    def from_dataframe(
        cls,
        train: Any,
        test: Any,
        *,
        path: str | None = None,
        image: str | None = None,
        label: str = "label",
        root: str | os.PathLike[str] | None = None,
        name: str = "dataframe",
        classes: Sequence[str] | None = None,
        size: int | None = None,
        channels: int | None = None,
        layout: str | None = None,
        lazy: bool | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> Dataset:
        """A data set from two tables with a column of paths or of images; None for no test images.

        Parameters
        ----------
        train, test : pandas.DataFrame
            One row per image. Class names are the categories of the labels, if the column is categorical.
        path : str
            The column with paths of picture files. Give either this or `image`.
        image : str
            The column with arrays, Pillow pictures or the bytes of picture files.
        label : str, default "label"
            The column of labels: whole numbers or strings.
        root : path, optional
            The folder that paths start from; the working folder unless given.
        name : str, default "dataframe"
        classes : sequence of str, optional
            Class names; those of `train` unless given, or the sorted distinct labels where it has none.
        size : int, optional
            Side in pixels of the square that images are resized to; without it all must have one size.
        channels : {1, 3}, optional
            Grey or colour; unless given, 1 if all images are grey and 3 otherwise (3 for files).
        layout : {"NCHW", "NHWC"}, optional
            Which axis of arrays holds the channels; found by its length of 1 or 3 unless given.
        lazy : bool, optional
            Whether pictures given by path are decoded when they are read; unless given, where all of them take more
            than $IBLURRY_EAGER_BYTES (4 GiB).
        mean, std : sequence of float, optional
            Per channel, of pixels scaled to [0, 1]; measured on training images unless given.
        """
        trained = dataframe_rows(train, "training", path=path, image=image, label=label)
        tested = dataframe_rows(test, "test", path=path, image=image, label=label)
        own: dict[str, Any] = {"name": name, "classes": classes, "mean": mean, "std": std}
        how: dict[str, Any] = {"size": size, "channels": channels, "layout": layout, "root": root, "lazy": lazy}
        return cls._from_rows(trained, tested, **own, **how)

    @classmethod
    def _from_rows(
        cls,
        train: LabelledRows,
        test: LabelledRows,
        *,
        name: str,
        classes: Sequence[str] | None,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        **options: Any,
    ) -> Dataset:
        if not train.count:
            raise InputError(f"The data set {name!r} has no training images; give at least one.")
        images, labels, are_files = read_rows(train, test, **options)
        if classes is None:
            classes, labels = name_labels(train, test, labels)
        if are_files and (mean is None or std is None):
            measured = mean_and_std(images[0], limit=MEASURED)
            mean, std = measured[0] if mean is None else mean, measured[1] if std is None else std
        return cls.from_arrays(
            *(images[0], labels[0], images[1], labels[1]), name=name, classes=classes, mean=mean, std=std, layout="NCHW"
        )


class _ImageSubset:
    """Rows of an array of images, read when they are asked for.

    Parameters
    ----------
    images : ImageStore
        (N, C, H, W) uint8.
    rows : ndarray of int
        Which of them.
    """

    def __init__(self, images: ImageStore, rows: NDArray[np.int64]) -> None:
        self.images, self.rows = images, rows
        self.shape, self.dtype = (len(rows), *images.shape[1:]), images.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any, /) -> NDArray[np.uint8]:
        return self.images[self.rows[rows]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)


def take(part: LabelledImages, rows: NDArray[np.int64]) -> LabelledImages:
    """These images of a part, with their labels; pictures on the disk stay there."""
    images = part.images
    chosen: ImageStore
    if isinstance(images, PictureFiles):
        names = [images.names[row] for row in rows.tolist()]
        chosen = PictureFiles(images.root, names, images.image, resized=images.resized)
    else:
        chosen = _ImageSubset(images, rows)
    return LabelledImages(chosen, part.labels[rows])


def with_train(dataset: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """The data set with these training images only; mean and std stay those of all."""
    return replace(dataset, train=take(dataset.train, rows))


def with_validation(dataset: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """The data set with these training images in place of its test images."""
    return replace(dataset, test=take(dataset.train, rows))


def mean_and_std(images: ImageStore, *, limit: int | None = None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels scaled to [0, 1]; a constant channel gets 1 to divide by.

    Of all images, or of `limit` of them, evenly spaced.
    """
    values = np.arange(256) / 255
    means, stds = [], []
    # from counts of the 256 values: exact, and no float copy of the images
    for counts in _count_values(images, min(len(images), limit or len(images))):
        share = counts / max(1, counts.sum())  # Dataset refuses images without pixels
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


def _check_normalisation(mean: tuple[float, ...], std: tuple[float, ...], *, channels: int) -> None:
    if len(mean) != channels or len(std) != channels:
        raise InputError(f"Images with {channels} channels need {channels} means and stds, not {mean} and {std}.")
    if not all(map(math.isfinite, mean)) or not all(math.isfinite(s) and s > 0 for s in std):
        raise InputError(f"Means must be finite and stds positive, not {mean} and {std}.")
