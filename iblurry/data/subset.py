"""Some of the images of a data set, as a data set of their own without a copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset, LabelledImages
from iblurry.data.images import ImageStore, PictureFiles


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
