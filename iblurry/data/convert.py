"""Whatever holds images and labels becomes bytes (N, C, H, W) and positions in a list of class names.

First what NumPy reads; then data sets of other libraries (torch, Hugging Face, pandas), which are recognised by what
they can do and not imported. Each is read as pairs of an image and a label. Images that are paths stay files
(iblurry.data.images.PictureFiles) where they are many; open pictures, encoded ones and arrays are converted at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.images import ImageStore, PictureFiles, check_form, load_images
from iblurry.data.picture import MODES, decode, resize, to_pixels, turn_upright
from iblurry.errors import DataError, InputError, UnknownNameError


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
    first, last = shape[1] in MODES, shape[3] in MODES
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


@dataclass(frozen=True)
class LabelledRows:
    """One part of a data set: its images and labels by row, and the names of its classes where it knows them."""

    part: str  # "training" or "test"
    count: int
    read: Callable[[int], tuple[Any, Any]]  # image and label of a row
    classes: tuple[str, ...] | None


_NOTHING = LabelledRows("test", 0, lambda row: (None, None), None)


def torch_rows(given: Any, part: str) -> LabelledRows:
    """The rows of a map-style torch.utils.data.Dataset of (image, label)."""
    if given is None and part == "test":
        return _NOTHING
    count = _count(given, part, "a map-style data set with len() and [row], as torch.utils.data.Dataset")

    def read(row: int) -> tuple[Any, Any]:
        item = _item(given, row, part)
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise InputError(f"Row {row} of the {part} data is {_short(item)}; each must be a pair (image, label).")
        return item[0], item[1]

    whole = given  # the data of a Subset are those of another data set
    while getattr(whole, "classes", None) is None and getattr(whole, "dataset", None) is not None:
        whole = whole.dataset
    names = getattr(whole, "classes", None)
    return LabelledRows(part, count, read, tuple(map(str, names)) if isinstance(names, list | tuple) else None)


def huggingface_rows(given: Any, part: str, *, image: str, label: str) -> LabelledRows:
    """The rows of a datasets.Dataset with these columns."""
    _check_columns(image=image, label=label)
    if given is None and part == "test":
        return _NOTHING
    if isinstance(given, Mapping):
        raise InputError(
            f"The {part} data hold the splits {', '.join(map(str, given))}; give one, as in data['train']."
        )
    count = _count(given, part, "a datasets.Dataset that is loaded, not streamed (streaming=False)")
    features = getattr(given, "features", None) or {}
    kind: Any = features.get(image)
    if getattr(kind, "decode", False) and (getattr(given, "format", None) or {}).get("type") is None:
        given = given.cast_column(image, type(kind)(decode=False))  # encoded, or the path: decoded as all pictures are

    def read(row: int) -> tuple[Any, Any]:
        item = _item(given, row, part)
        if not isinstance(item, Mapping):
            raise InputError(f"Row {row} of the {part} data is {_short(item)}; each must be a dict of columns.")
        for column in (image, label):
            if column not in item:
                raise UnknownNameError(f"column of the {part} data", str(column), map(str, item))
        picture = item[image]
        if isinstance(picture, Mapping) and picture.keys() >= {"bytes", "path"}:
            picture = picture["path"] if picture["bytes"] is None else picture["bytes"]
        return picture, item[label]

    names = getattr(features.get(label), "names", None)
    return LabelledRows(part, count, read, tuple(map(str, names)) if names else None)


def dataframe_rows(given: Any, part: str, *, path: str | None, image: str | None, label: str) -> LabelledRows:
    """The rows of a pandas.DataFrame, or of another table with columns, of which one has paths or images."""
    if (path is None) == (image is None):
        raise InputError(
            f"path={path!r}, image={image!r}: give one of them, path='COLUMN' for the paths of picture files or "
            "image='COLUMN' for arrays or pictures."
        )
    _check_columns(**({"image": image} if path is None else {"path": path}), label=label)
    if given is None and part == "test":
        return _NOTHING
    wanted = "a table with columns, as pandas.DataFrame"
    count, named = _count(given, part, wanted), getattr(given, "columns", None)
    if not isinstance(named, Iterable):
        raise InputError(f"The {part} data must be {wanted}, not {type(given).__name__}.")
    columns: list[list[Any]] = []
    for column in (image if path is None else path, label):
        known = [name for name in named if isinstance(name, str)]
        if column not in known:
            raise UnknownNameError(f"column of the {part} table", str(column), known)
        columns.append(list(given[column]))
    if path is not None:
        odd = next((row for row, value in enumerate(columns[0]) if not _is_path(value)), None)
        if odd is not None:
            raise InputError(f"Row {odd} of the {part} table has the path {_short(columns[0][odd])}; give a file name.")
    names = getattr(getattr(given[label], "dtype", None), "categories", None)  # of a categorical column
    if names is not None:
        columns[1] = [value if _is_missing(value) else str(value) for value in columns[1]]
    classes = tuple(map(str, names)) if names is not None else None
    return LabelledRows(part, count, lambda row: (columns[0][row], columns[1][row]), classes)


def read_rows(
    train: LabelledRows,
    test: LabelledRows,
    *,
    size: int | None,
    channels: int | None,
    layout: str | None,
    root: str | os.PathLike[str] | None = None,
    lazy: bool | None = None,
) -> tuple[tuple[ImageStore, ImageStore], tuple[list[Any], list[Any]], bool]:
    """Reads each row once: the images of both parts, their labels, and whether the images were given as paths.

    The options are those of Dataset.from_dataframe.
    """
    check_form(size, channels)
    if not isinstance(lazy, bool | None):
        raise InputError(f"lazy={_short(lazy)} is not possible; give True, False or None.")
    if root is not None and not _is_path(root):
        raise InputError(f"root={_short(root)} is not a folder; give a path.")
    labels: tuple[list[Any], list[Any]] = ([], [])
    rows = _read_each((train, test), labels)
    first = next(rows)
    rows = chain([first], rows)
    if _is_path(first[2]):
        return _load_files(rows, size=size, channels=channels or 3, root=root, lazy=lazy), labels, True
    square = None if size is None else (size, size)
    held: NDArray[np.uint8] | None = None
    for part, where, image in rows:
        found = _to_pixels(image, where, channels, square, layout)
        if held is None:
            held = np.empty((train.count + test.count, *found.shape), dtype=np.uint8)
        if (held.shape[1], len(found)) == (1, 3):  # grey ones get three channels where others have colours
            held = np.repeat(held, 3, axis=1)
        if found.shape[1:] != held.shape[2:] or len(found) not in (1, held.shape[1]):
            raise InputError(
                f"The {where} is {found.shape} (C, H, W) but others are {held.shape[1:]}; "
                "give size=... so that all are resized to one size."
            )
        held[part * train.count + len(labels[part]) - 1] = found
    assert held is not None
    return (held[: train.count], held[train.count :]), labels, False


def _read_each(
    parts: tuple[LabelledRows, LabelledRows], labels: tuple[list[Any], list[Any]]
) -> Iterator[tuple[int, str, Any]]:
    """0 or 1 for the part, what errors call the row, and its image; the label is appended to those of the part."""
    for part, rows in enumerate(parts):
        for row in range(rows.count):
            image, label = rows.read(row)
            for what, value in (("image", image), ("label", label)):
                if _is_missing(value):
                    raise InputError(f"Row {row} of the {rows.part} data has no {what}; fill it in or leave it out.")
            labels[part].append(label.item() if getattr(label, "shape", None) == () else label)
            yield part, f"{rows.part} image {row}", image


def _load_files(
    rows: Iterable[tuple[int, str, Any]],
    *,
    size: int | None,
    channels: int,
    root: str | os.PathLike[str] | None,
    lazy: bool | None,
) -> tuple[ImageStore, ImageStore]:
    """Images that are paths: decoded now or, where they are many, when they are read."""
    names: tuple[list[str], list[str]] = ([], [])
    for part, where, image in rows:
        if not _is_path(image):
            raise InputError(f"The {where} is {_short(image)}, but the first is a path; give only paths, or no paths.")
        names[part].append(os.fspath(image))
    place = Path(root or ".").expanduser()
    if root is None and all(map(os.path.isabs, chain(*names))):
        # the same files in another place are the same data, so their names begin where they differ
        place = Path(os.path.commonpath([os.path.dirname(name) for name in chain(*names)]))
        for own in names:
            own[:] = [os.path.relpath(name, place) for name in own]
    return load_images(place, *names, size=size, channels=channels, lazy=lazy)


def _to_pixels(
    image: Any, where: str, channels: int | None, size: tuple[int, int] | None, layout: str | None
) -> NDArray[np.uint8]:
    """(C, H, W) of one image in memory."""
    from PIL import Image

    if isinstance(image, bytes):
        return decode(image, f"The {where}", channels, size=size)
    if isinstance(image, Image.Image):
        try:
            return to_pixels(turn_upright(image), channels, size=size)
        except (OSError, ValueError) as error:  # a file that is cut short is noticed when its pixels are read
            raise DataError(f"The {where} is not a readable picture ({error}); replace it or leave it out.") from error
    if _is_path(image):
        raise InputError(
            f"The {where} is the path {_short(image)}, but the first is not; give only paths, or no paths."
        )
    array = to_array(image.detach().cpu() if callable(getattr(image, "detach", None)) else image, where)
    if array.ndim not in (2, 3) or array.dtype.kind not in "uif":
        found = f"{array.dtype} of shape {array.shape}" if array.ndim else _short(image)
        raise InputError(
            f"The {where} is {found}; give a picture of Pillow, its bytes or path, or an array of bytes or floats "
            "(H, W), (C, H, W) or (H, W, C)."
        )
    pixels = to_images(array[None], where, layout)[0]
    if channels not in (None, len(pixels)):
        if len(pixels) not in MODES:
            raise InputError(f"The {where} has {len(pixels)} channels; leave channels={channels} out.")
        plane = pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
        pixels = to_pixels(Image.fromarray(plane), channels)
    return pixels if size is None else resize(pixels, size)


def name_labels(
    train: LabelledRows, test: LabelledRows, labels: tuple[list[Any], list[Any]]
) -> tuple[Sequence[str] | None, tuple[list[Any], list[Any]]]:
    """The classes that the data know, and labels that mean the same in both parts.

    Where these number their classes differently, as two folders of which one lacks a class, numbers become names.
    """
    if train.classes is None or test.classes in (None, train.classes):
        return train.classes, labels
    if not all(isinstance(label, int) for label in chain(*labels)):
        return train.classes, labels
    named: tuple[list[Any], list[Any]] = ([], [])
    for rows, own, into in zip((train, test), labels, named, strict=True):
        assert rows.classes is not None
        if wrong := [label for label in own if not 0 <= label < len(rows.classes)]:
            known = f"{len(rows.classes)} classes"
            raise InputError(f"The {rows.part} data have the label {wrong[0]} but {known}; correct it.")
        into += [rows.classes[label] for label in own]
    return train.classes, named


def _check_columns(**columns: Any) -> None:
    for name, column in columns.items():
        if not isinstance(column, str):
            raise InputError(f"{name}={_short(column)} is not the name of a column; give a string.")


def _count(given: Any, part: str, wanted: str) -> int:
    try:
        count = len(given)
        given.__getitem__  # noqa: B018  it is used later
    except (TypeError, AttributeError, NotImplementedError, ValueError, OverflowError):
        raise InputError(f"The {part} data must be {wanted}, not {type(given).__name__}.") from None
    return count


def _item(given: Any, row: int, part: str) -> Any:
    try:
        return given[row]
    except Exception as error:  # whatever another library or the user's own code raises
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"Row {row} of the {part} data cannot be read ({what}); correct or leave it out.") from error


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
