"""Classes as scikit-learn lists them, sorted, and as a learner names them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from iblurry.errors import InputError
from iblurry.learner import Label


def merged(known: NDArray[Any] | None, y: NDArray[Any], classes: ArrayLike | None, *, most: int) -> NDArray[Any]:
    """The classes known before, announced now and met now, sorted.

    >>> merged(np.array([2, 4]), np.array([3, 2]), None, most=10)
    array([2, 3, 4])
    """
    check_classification_targets(y)
    met = np.unique(y)
    groups = [met] if known is None else [known, met]
    if classes is not None:
        announced = np.unique(column_or_1d(classes))
        check_classification_targets(announced)
        _one_kind([*groups, announced])
        strangers = np.setdiff1d(met, announced if known is None else np.union1d(known, announced))
        if len(strangers):
            raise InputError(
                f"y holds {_named(strangers)}, but classes={_named(announced)}; list all, or leave `classes` out."
            )
        groups.append(announced)
    _one_kind(groups)
    every = np.unique(np.concatenate(groups))
    if len(every) > most:
        raise InputError(
            f"There are {len(every)} classes by now and max_classes={most}; a learner's head does not grow, so begin "
            f"again with max_classes={len(every)} or more."
        )
    return every


def label(one: Any) -> Label:
    """A class as the learner names it: text as it is; 2.0 and 2 are the same class, and so are True and 1."""
    return one if isinstance(one, str) else int(one)


def _one_kind(groups: list[NDArray[Any]]) -> None:
    kinds = {group.dtype.kind in "biuf" for group in groups if len(group)}
    if len(kinds) > 1:
        raise InputError(
            f"Some classes are text and others numbers ({'; '.join(map(_named, groups))}); name all of them one way."
        )


def _named(classes: NDArray[Any]) -> str:
    return str(classes.tolist())
