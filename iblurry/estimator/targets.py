"""Classes as scikit-learn lists them, sorted, and as a learner names them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from iblurry.errors import InputError
from iblurry.learner import Label

TEXT = "UO"  # kinds of arrays; objects are text here
FEW = 5  # classes shown in a sentence


def plain(y: NDArray[Any], name: str) -> NDArray[Any]:
    """y without dates, bytes and mixed objects, which cannot be classes; whole numbers kept as objects as numbers.

    >>> plain(np.array([3, 1], dtype=object), "y")
    array([3, 1])
    """
    if y.dtype.kind in "biufcU":  # a complex or broken number is refused by scikit-learn
        return y
    objects = y.tolist() if y.dtype.kind == "O" else []
    if objects and all(isinstance(one, str) for one in objects):
        return y
    if objects and all(isinstance(one, bool | np.bool_) for one in objects):
        return y.astype(bool)
    if objects and all(isinstance(one, int | np.integer) for one in objects):
        kind = _kind_for(map(int, objects))
        if kind is not None:
            return y.astype(kind)
    kinds = sorted({type(one).__name__ for one in objects}) or [str(y.dtype)]
    raise InputError(
        f"{name} holds {_listed(y)} ({', '.join(kinds)}), and classes are all text or all whole numbers of at most "
        f"64 bits; name them so, as in {name}.astype(str)."
    )


def merged(known: NDArray[Any] | None, y: NDArray[Any], classes: ArrayLike | None, *, most: int) -> NDArray[Any]:
    """The classes known before, announced now and met now, sorted; y is `plain`.

    >>> merged(np.array([2, 4]), np.array([3, 2]), None, most=10)
    array([2, 3, 4])
    """
    with np.errstate(invalid="ignore"):  # it tries whether floats are whole by making them integers
        check_classification_targets(y)
    met = np.unique(y)
    groups = [] if known is None else [known]
    if classes is not None:
        announced = np.unique(plain(column_or_1d(classes), "classes"))
        check_classification_targets(announced)
        groups.append(announced)
        _one_kind([*groups, met])
        allowed = _labels(groups)
        strangers = [one for one in met.tolist() if label(one) not in allowed]
        if strangers:
            raise InputError(
                f"y holds {strangers}, but classes={announced.tolist()}; list all, or leave `classes` out."
            )
    every = _joined([*groups, met])
    if len(every) > most:
        raise InputError(
            f"There are {len(every)} classes by now and max_classes={most}; a learner's head does not grow, so begin "
            f"again with max_classes={len(every)} or more."
        )
    return every


def label(one: Any) -> Label:
    """A class as the learner names it: text as it is; 2.0 and 2 are the same class, and so are True and 1."""
    return one if isinstance(one, str) else int(one)


def _joined(groups: list[NDArray[Any]]) -> NDArray[Any]:
    """All of them, sorted, in a type that holds each exactly."""
    _one_kind(groups)
    every, labels = np.unique(np.concatenate(groups)), _labels(groups)
    if every.dtype.kind == "f" and all(group.dtype.kind in "biu" for group in groups):
        kind = _kind_for(map(int, labels))  # signed and unsigned of 64 bits: numpy would make them floats
        every = np.unique(np.concatenate([group.astype(kind) for group in groups])) if kind else every[:0]
    if _labels([every]) != labels:
        raise InputError(
            f"No type of numbers holds all classes exactly ({'; '.join(map(_listed, groups))}); give them as text, as "
            "in y.astype(str)."
        )
    return every


def _kind_for(numbers: Iterable[int]) -> type[np.integer[Any]] | None:
    """The integers of 64 bits that hold all of them, or None."""
    given = list(numbers)
    least, most = min(given), max(given)
    kinds = (np.int64, np.uint64)
    return next((kind for kind in kinds if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max), None)


def _one_kind(groups: list[NDArray[Any]]) -> None:
    kinds = {group.dtype.kind in TEXT for group in groups if len(group)}
    if len(kinds) > 1:
        raise InputError(
            f"Some classes are text and others numbers ({'; '.join(map(_listed, groups))}); name all of them one way."
        )


def _labels(groups: list[NDArray[Any]]) -> set[Label]:
    return {label(one) for group in groups for one in group.tolist()}


def _listed(classes: NDArray[Any]) -> str:
    """The first few."""
    shown = [str(one) if classes.dtype.kind in "Mm" else repr(one) for one in classes[:FEW].tolist()]
    return f"[{', '.join(shown)}{', ...' if len(classes) > FEW else ''}]"
