"""X as a learner takes it: uint8 images, be they pixels or the bytes of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import InputError
from iblurry.estimator.plan import Shape
from iblurry.network.table_mlp import from_bytes, to_bytes


def as_table(X: Any, shape: Shape | None) -> tuple[Any, Shape | None]:
    """Images as rows of pixels, and their shape; what has two dimensions or fewer as it is.

    >>> as_table(np.zeros((5, 8, 8)), None)[0].shape
    (5, 64)
    """
    if getattr(X, "ndim", 3) <= 2:  # also of sparse matrices and data frames, which are judged elsewhere
        return X, shape
    images = np.asarray(X)
    if images.ndim <= 2:
        return X, shape
    found = images.shape[1:] if images.ndim != 3 else (1, *images.shape[1:])
    if len(found) != 3:
        raise InputError(f"X has shape {images.shape}; images are (n, height, width) or (n, channels, height, width).")
    if found[2] in (1, 3, 4) and found[2] < min(found[:2]):
        raise InputError(
            f"X has shape {images.shape}, as if channels came last; they come first: X.transpose(0, 3, 1, 2)."
        )
    if shape not in (None, found):
        raise InputError(f"The images of X have shape {found}, but {shape} was said before (channels, height, width).")
    return images.reshape(len(images), math.prod(found)), found


def as_images(table: NDArray[Any], shape: Shape | None) -> NDArray[np.uint8]:
    """(n, columns), checked -> (n, channels, height, width); the bytes of float32 where rows are numbers."""
    if shape is None:
        return to_bytes(table)
    if table.dtype != np.uint8:
        no_pixel = table[(table < 0) | (table > 255) | (table != np.rint(table))]
        if no_pixel.size:
            raise InputError(
                f"Pixels are whole numbers from 0 to 255, but X holds {no_pixel[0]:g}; scale and round them, as in "
                "(255 * X).round(), or leave out `shape` to learn from the numbers as they are."
            )
    return table.astype(np.uint8).reshape(-1, *shape)


def as_they_came(images: NDArray[np.uint8], shape: Shape | None) -> NDArray[Any]:
    """TableMLP in rows, pixels as images; a copy."""
    return from_bytes(images).copy() if shape is None else images.copy()
