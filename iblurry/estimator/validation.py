"""Checks and converts X and y: rows to uint8 images, targets to classes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from iblurry.errors import InputError
from iblurry.learner.config import Label
from iblurry.network.table_mlp import from_bytes, to_bytes

Shape = tuple[int, int, int]  # channels, height, width
TEXT = "UO"  # kinds of arrays that hold text; objects are text here
SHOWN = 5  # classes listed in an error message


def as_table(X: Any, shape: Shape | None) -> tuple[Any, Shape | None]:
    """Flattens images to rows of pixels and returns their shape; X of two dimensions or fewer stays as it is.

    >>> as_table(np.zeros((5, 8, 8)), None)[0].shape
    (5, 64)
    """
    if getattr(X, "ndim", 3) <= 2:  # also sparse matrices and data frames, which scikit-learn checks later
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
        raise InputError(f"The images of X have shape {found}, but {shape} is expected (channels, height, width).")
    return images.reshape(len(images), math.prod(found)), found


def as_images(table: NDArray[Any], shape: Shape | None) -> NDArray[np.uint8]:
    """(n, columns) -> (n, channels, height, width) uint8; the bytes of float32 where rows are numbers."""
    if shape is None:
        return to_bytes(table)
    if table.dtype != np.uint8:
        invalid = table[(table < 0) | (table > 255) | (table != np.rint(table))]
        if invalid.size:
            raise InputError(
                f"Pixels are whole numbers from 0 to 255, but X holds {invalid[0]:g}; scale and round them, as in "
                "(255 * X).round(), or leave out `shape` to learn from the numbers as they are."
            )
    return table.astype(np.uint8).reshape(-1, *shape)


def from_images(images: NDArray[np.uint8], shape: Shape | None) -> NDArray[Any]:
    """The inverse of `as_images`, but pixels stay images; a copy."""
    return from_bytes(images).copy() if shape is None else images.copy()


def check_targets(y: NDArray[Any], name: str) -> NDArray[Any]:
    """Refuses dates, bytes and mixed objects, which cannot be classes; integers in an object array become integers.

    >>> check_targets(np.array([3, 1], dtype=object), "y")
    array([3, 1])
    """
    if y.dtype.kind in "biufcU":  # a complex or broken number is refused by scikit-learn
        return y
    objects = y.tolist() if y.dtype.kind == "O" else []
    if objects and all(isinstance(item, str) for item in objects):
        return y
    if objects and all(isinstance(item, bool | np.bool_) for item in objects):
        return y.astype(bool)
    if objects and all(isinstance(item, int | np.integer) for item in objects):
        kind = _int_type(map(int, objects))
        if kind is not None:
            return y.astype(kind)
    kinds = sorted({type(item).__name__ for item in objects}) or [str(y.dtype)]
    raise InputError(
        f"{name} holds {_show(y)} ({', '.join(kinds)}), but classes must be all text or all whole numbers of at "
        f"most 64 bits; convert them, as in {name}.astype(str)."
    )


def merge_classes(known: NDArray[Any] | None, y: NDArray[Any], classes: ArrayLike | None, *, most: int) -> NDArray[Any]:
    """The classes known before, announced now and met now, sorted; y went through `check_targets`.

    >>> merge_classes(np.array([2, 4]), np.array([3, 2]), None, most=10)
    array([2, 3, 4])
    """
    with np.errstate(invalid="ignore"):  # it tries whether floats are whole by making them integers
        check_classification_targets(y)
    met = np.unique(y)
    groups = [] if known is None else [known]
    if classes is not None:
        announced = np.unique(check_targets(column_or_1d(classes), "classes"))
        check_classification_targets(announced)
        groups.append(announced)
        _check_one_kind([*groups, met])
        allowed = _labels(groups)
        unknown = [name for name in met.tolist() if to_label(name) not in allowed]
        if unknown:
            raise InputError(f"y holds {unknown}, but classes={announced.tolist()}; list all, or leave `classes` out.")
    every = _join([*groups, met])
    if len(every) > most:
        raise InputError(
            f"There are {len(every)} classes by now and max_classes={most}; a learner's head does not grow, so start "
            f"again with max_classes={len(every)} or more."
        )
    return every


def to_label(name: Any) -> Label:
    """The learner's label of a class: text as it is; 2.0 and 2 are the same class, and so are True and 1."""
    return name if isinstance(name, str) else int(name)


def _join(groups: list[NDArray[Any]]) -> NDArray[Any]:
    """The union, sorted, in a type that holds each class exactly."""
    _check_one_kind(groups)
    every, labels = np.unique(np.concatenate(groups)), _labels(groups)
    if every.dtype.kind == "f" and all(group.dtype.kind in "biu" for group in groups):
        kind = _int_type(map(int, labels))  # signed and unsigned of 64 bits: numpy would make them floats
        every = np.unique(np.concatenate([group.astype(kind) for group in groups])) if kind else every[:0]
    if _labels([every]) != labels:
        raise InputError(
            f"No type of numbers holds all classes exactly ({'; '.join(map(_show, groups))}); give them as text, as "
            "in y.astype(str)."
        )
    return every


def _int_type(numbers: Iterable[int]) -> type[np.integer[Any]] | None:
    """The 64-bit integer type that holds all of them, or None."""
    given = list(numbers)
    least, most = min(given), max(given)
    kinds = (np.int64, np.uint64)
    return next((kind for kind in kinds if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max), None)


def _check_one_kind(groups: list[NDArray[Any]]) -> None:
    kinds = {group.dtype.kind in TEXT for group in groups if len(group)}
    if len(kinds) > 1:
        raise InputError(
            f"Some classes are text and others numbers ({'; '.join(map(_show, groups))}); name all of them one way."
        )


def _labels(groups: list[NDArray[Any]]) -> set[Label]:
    return {to_label(name) for group in groups for name in group.tolist()}


def _show(classes: NDArray[Any]) -> str:
    """The first few, for an error message."""
    shown = [str(name) if classes.dtype.kind in "Mm" else repr(name) for name in classes[:SHOWN].tolist()]
    return f"[{', '.join(shown)}{', ...' if len(classes) > SHOWN else ''}]"
