"""Images and labels in whatever form NumPy reads become bytes (N, C, H, W) and positions in a list of class names."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.images import ImageStore, PictureFiles
from iblurry.errors import InputError

CHANNELS = (1, 3)  # grey or colour: what tells (N, C, H, W) from (N, H, W, C)


def to_images(given: Any, what: str, layout: str | None = None) -> ImageStore:
    """(N, C, H, W) of bytes or of floats in [0, 1], in one of the layouts; `what` names them in an InputError.

    Pictures that stay on the disk are returned as they are.
    """
    if isinstance(given, PictureFiles):
        return given
    images = to_array(given, what)
    if layout is not None and not (isinstance(layout, str) and layout in ("NCHW", "NHWC")):
        raise InputError(f"The layout {layout!r} is not known; give 'NCHW', 'NHWC' or None to find it by the channels.")
    if images.ndim not in (3, 4):
        raise InputError(f"The {what} have the shape {images.shape}; give (N, H, W), (N, H, W, C) or (N, C, H, W).")
    if images.ndim == 3:
        return _to_bytes(images[:, None], what)
    layout = layout or _layout(images.shape, what)
    return _to_bytes(images if layout == "NCHW" else images.transpose(0, 3, 1, 2), what)


def to_labels(given: Any, part: str) -> NDArray[Any]:
    """(N,) of whole numbers or strings; `part` names the labels in an InputError."""
    if isinstance(given, list | tuple):  # NumPy would make strings of [1, "a"] and ones of [1, True]
        given = [label.item() if isinstance(label, np.generic) else label for label in given]
        odd = next((row for row, label in enumerate(given) if _label_kind(label) != _label_kind(given[0])), None)
        if odd is not None:
            raise InputError(
                f"The {part} labels {given[0]!r} and {given[odd]!r} (row {odd}) have different types; "
                "give only whole numbers or only strings."
            )
    labels = to_array(given, f"{part} labels")
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


def label_positions(
    parts: Sequence[NDArray[Any]], *, classes: Sequence[str] | None
) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    """The names of the classes, and the labels of each part as positions in them."""
    classes = None if classes is None else _class_names(classes)
    kinds = {"str" if part.dtype.kind == "U" else "int" for part in parts if part.size}
    if len(kinds) > 1:
        raise InputError("The training and test labels have different types, numbers and strings; use one type.")
    if classes is not None and "str" not in kinds:
        return classes, [part.astype(np.int64) for part in parts]
    if np.result_type(*parts).kind == "f":  # what NumPy makes of uint64 beside int64
        parts = [part.astype(object) for part in parts]
    known = np.unique(np.concatenate([part for part in parts if part.size] or parts))
    names = tuple(map(str, known.tolist() if classes is None else classes))
    position = {name: at for at, name in enumerate(names)}
    unknown = [name for name in map(str, known.tolist()) if name not in position]
    if unknown:
        raise InputError(f"The label {unknown[0]!r} is not among the classes {', '.join(names)}; add it or relabel.")
    at = np.array([position[str(name)] for name in known.tolist()], dtype=np.int64)
    return names, [at[np.searchsorted(known, part)] if part.size else np.empty(0, dtype=np.int64) for part in parts]


def _class_names(given: Any) -> tuple[str, ...]:
    """Names in the order of the labels; InputError if it is no sequence of strings or whole numbers."""
    given = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise InputError(f"classes={given!r} are not names; give a list of strings, in the order of the labels.")
    for name in given:
        if _label_kind(name) not in (str, Integral):
            raise InputError(f"The class name {name!r} is not a string; give a list of strings.")
    return tuple(map(str, given))


def to_floats(given: Any, what: str) -> tuple[float, ...]:
    """Numbers; `what` names them in an InputError."""
    try:
        return tuple(float(number) for number in given)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise InputError(f"{what}={given!r} are not numbers; give one for each channel.") from None


def to_array(given: Any, what: str) -> NDArray[Any]:
    """What `np.asarray` makes of it; InputError, which names it, where that is nothing."""
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        # ragged lists, tensors on a GPU, tensors with gradients: NumPy's or torch's own words say which
        raise InputError(f"The {what} cannot become a NumPy array: {error}") from error


def _label_kind(label: object) -> type:
    return next((kind for kind in (bool, Integral, str) if isinstance(label, kind)), type(label))


def _layout(shape: tuple[int, ...], what: str) -> str:
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last:
        why = "both (N, C, H, W) and (N, H, W, C)" if first else "neither (N, C, H, W) nor (N, H, W, C)"
        raise InputError(
            f"The {what} of shape {shape} could be {why} with 1 or 3 channels; give layout='NCHW' or 'NHWC'."
        )
    return "NCHW" if first else "NHWC"


def _to_bytes(images: NDArray[Any], what: str) -> NDArray[np.uint8]:
    if images.dtype == np.uint8:
        return np.ascontiguousarray(images)
    top = {"f": 1, "i": 255, "u": 255}.get(images.dtype.kind)
    if top is None:
        raise InputError(f"The {what} are {images.dtype}; give bytes (uint8) or floats in [0, 1].")
    if images.size and not (images.min() >= 0 and images.max() <= top):  # written so that NaN is refused too
        raise InputError(
            f"The {what} ({images.dtype}) run from {images.min()} to {images.max()}; {images.dtype} images must lie in "
            f"[0, {top}]: scale them first, and leave normalisation to the mean and std of the data set."
        )
    return np.ascontiguousarray(np.rint(images * (255 // top)).astype(np.uint8))
