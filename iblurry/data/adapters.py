"""Data sets of other libraries, which are recognised by what they can do and not imported: torch, Hugging Face, pandas.

Each is read as pairs of an image and a label. Images that are paths stay files (iblurry.data.images.PictureFiles) where
they are many; open pictures, encoded ones and arrays are converted at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iblurry.data.convert import to_array, to_images
from iblurry.data.images import ImageStore, load_images
from iblurry.data.picture import MODES, decode, resize, to_pixels, turn_upright
from iblurry.errors import DataError, InputError, UnknownNameError

_LARGEST = 2**16  # pixels of a side


@dataclass(frozen=True)
class AdapterOptions:
    """What every adapter takes; Dataset.from_dataframe documents it."""

    name: str
    classes: Sequence[str] | None = None
    size: int | None = None
    channels: int | None = None
    layout: str | None = None
    root: str | os.PathLike[str] | None = None
    lazy: bool | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    def __post_init__(self) -> None:
        size, root = self.size, self.root
        if size is not None and not (_is_whole(size) and 1 <= size <= _LARGEST):
            raise InputError(f"size={_short(size)} is not possible; give a number of pixels from 1 to {_LARGEST:,}.")
        if self.channels is not None and not (_is_whole(self.channels) and self.channels in MODES):
            raise InputError(f"channels={_short(self.channels)} is not possible; give 1 (grey), 3 (colour) or None.")
        if not isinstance(self.lazy, bool | None):
            raise InputError(f"lazy={_short(self.lazy)} is not possible; give True, False or None.")
        if root is not None and not _is_path(root):
            raise InputError(f"root={_short(root)} is not a folder; give a path.")


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


class ReadRows(NamedTuple):
    """What the rows of both parts hold, as `Dataset.from_arrays` takes it: training first."""

    images: tuple[ImageStore, ImageStore]
    labels: tuple[list[Any], list[Any]]
    classes: Sequence[str] | None
    are_files: bool  # whether the images were given as paths


def read_rows(train: LabelledRows, test: LabelledRows, options: AdapterOptions) -> ReadRows:
    """Reads each row once; the labels mean the same in both parts."""
    if not train.count:
        raise InputError(f"The data set {options.name!r} has no training images; give at least one.")
    read = _Reader((train, test), options)
    images = read.images()
    classes, labels = _name_labels((train, test), read.labels, options.classes)
    return ReadRows(images, labels, classes, read.are_files)


class _Reader:
    """Reads all rows once; afterwards `labels` holds those of each part."""

    def __init__(self, parts: tuple[LabelledRows, LabelledRows], options: AdapterOptions) -> None:
        self.parts, self.options = parts, options
        self.labels: tuple[list[Any], list[Any]] = ([], [])
        self.are_files = False

    def images(self) -> tuple[ImageStore, ImageStore]:
        """Returns the images of each part: files if the first is a path, else pixels."""
        rows = self._rows()
        first = next(rows)
        self.are_files = _is_path(first[2])
        return (self._files if self.are_files else self._pixels)(chain([first], rows))

    def _files(self, rows: Iterable[tuple[int, int, Any]]) -> tuple[ImageStore, ImageStore]:
        """Images that are paths: decoded now or, where they are many, when they are read."""
        names: tuple[list[str], list[str]] = ([], [])
        for part, row, image in rows:
            if not _is_path(image):
                raise InputError(f"The {_where(self.parts[part], row)} is {_short(image)}, but the first is a path.")
            names[part].append(os.fspath(image))
        options, root = self.options, Path(self.options.root or ".").expanduser()
        if options.root is None and all(map(os.path.isabs, chain(*names))):
            # the same files in another place are the same data, so their names begin where they differ
            root = Path(os.path.commonpath([os.path.dirname(name) for name in chain(*names)]))
            names = (
                [os.path.relpath(name, root) for name in names[0]],
                [os.path.relpath(name, root) for name in names[1]],
            )
        return load_images(root, *names, size=options.size, channels=options.channels or 3, lazy=options.lazy)

    def _pixels(self, rows: Iterable[tuple[int, int, Any]]) -> tuple[ImageStore, ImageStore]:
        """Images that are anything else, in memory; grey ones get three channels where others have colours."""
        train, test = self.parts
        held: NDArray[np.uint8] | None = None
        for part, row, image in rows:
            found = self._convert(image, _where(self.parts[part], row))
            if held is None:
                held = np.empty((train.count + test.count, *found.shape), dtype=np.uint8)
            if (held.shape[1], len(found)) == (1, 3):
                held = np.repeat(held, 3, axis=1)
            if found.shape[1:] != held.shape[2:] or len(found) not in (1, held.shape[1]):
                raise InputError(
                    f"The {_where(self.parts[part], row)} is {found.shape} (C, H, W) but others are {held.shape[1:]}; "
                    "give size=... so that all are resized to one size."
                )
            held[part * train.count + row] = found
        assert held is not None
        return held[: train.count], held[train.count :]

    def _rows(self) -> Iterator[tuple[int, int, Any]]:
        """0 or 1 for the part, the row and the image; the label is kept."""
        for part, rows in enumerate(self.parts):
            for row in range(rows.count):
                image, label = rows.read(row)
                if _is_missing(image) or _is_missing(label):
                    what = "image" if _is_missing(image) else "label"
                    raise InputError(f"Row {row} of the {rows.part} data has no {what}; fill it in or leave it out.")
                self.labels[part].append(label.item() if getattr(label, "shape", None) == () else label)
                yield part, row, image

    def _convert(self, image: Any, where: str) -> NDArray[np.uint8]:
        """(C, H, W) of one image."""
        from PIL import Image

        options = self.options
        size = None if options.size is None else (options.size, options.size)
        if isinstance(image, bytes):
            return decode(image, f"The {where}", options.channels, size=size)
        if isinstance(image, Image.Image):
            try:
                return to_pixels(turn_upright(image), options.channels, size=size)
            except (OSError, ValueError) as error:  # a file that is cut short is noticed when its pixels are read
                raise DataError(
                    f"The {where} is not a readable picture ({error}); replace it or leave it out."
                ) from error
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
        pixels = to_images(array[None], where, options.layout)[0]
        if options.channels not in (None, len(pixels)):
            if len(pixels) not in MODES:
                raise InputError(f"The {where} has {len(pixels)} channels; leave channels={options.channels} out.")
            plane = pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
            pixels = to_pixels(Image.fromarray(plane), options.channels)
        return pixels if size is None else resize(pixels, size)


def _name_labels(
    parts: tuple[LabelledRows, LabelledRows], labels: tuple[list[Any], list[Any]], classes: Sequence[str] | None
) -> tuple[Sequence[str] | None, tuple[list[Any], list[Any]]]:
    """The classes, and labels that mean the same in both parts, also where these number their classes differently."""
    train, test = parts
    if classes is not None or train.classes is None:
        return classes, labels
    if test.classes in (None, train.classes) or not all(isinstance(label, int) for label in chain(*labels)):
        return train.classes, labels
    return train.classes, (_named(train, labels[0]), _named(test, labels[1]))


def _named(rows: LabelledRows, labels: Iterable[int]) -> list[Any]:
    assert rows.classes is not None
    try:
        return [rows.classes[label] for label in labels]
    except IndexError:
        raise InputError(
            f"The {rows.part} data have labels beyond their {len(rows.classes)} classes; correct them."
        ) from None


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


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def _where(rows: LabelledRows, row: int) -> str:
    return f"{rows.part} image {row}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
