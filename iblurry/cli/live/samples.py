"""Labelled images to send: pictures in folders, single ones, data sets; shuffled by a seed, resized if too large."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from iblurry.data.labels import class_labels, known_label
from iblurry.errors import DataError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")  # formats a service reads
PIXELS = 178_956_970  # twice what Pillow opens without a warning: beyond, it opens nothing


class LabelledFile(NamedTuple):
    """A label, and the row of its image in a list of paths or an array of images."""

    label: str
    images: Any
    row: int

    @property
    def image(self) -> Any:
        """A path or an array (C, H, W)."""
        return self.images[self.row]

    @property
    def name(self) -> str:
        """The path, or the row."""
        return str(self.images[self.row]) if isinstance(self.images, list) else f"image {self.row}"


def find_samples(places: Sequence[str], label: str | None, *, part: str = "train") -> list[LabelledFile]:
    """Everything at these places: pictures with one label, or folders by class, .npz files and data sets.

    `part` is "train" or "test", where there are both.
    """
    if label is not None:
        known_label(label)
    found = [_by_class(place, part) if label is None else _with_label(place, label) for place in places]
    return [sample for samples in found for sample in samples]


def arrange(samples: Sequence[LabelledFile], *, seed: int | None, limit: int | None) -> list[LabelledFile]:
    """The first `limit` of a random order, or without a seed of the order they have."""
    if seed is None:
        return list(samples[:limit])
    from iblurry.rng import Rng

    return [samples[row] for row in Rng(seed).permutation("send", 0, len(samples))[:limit].tolist()]


class FittedImages:
    """The images of samples, each read and resized when it is due."""

    def __init__(self, samples: Sequence[LabelledFile], shape: tuple[int, ...]) -> None:
        self.samples, self.shape = samples, shape

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int, /) -> Any:
        image = self.samples[index].image
        return fit(image, self.shape) if isinstance(image, Path) else image


def fit(path: Path, shape: tuple[int, ...]) -> Path | NDArray[np.uint8]:
    """The path; or for a picture beyond a service's limits (C, H, W), as the service itself would decode it."""
    from iblurry.data.images import read_bytes
    from iblurry.live.http.pictures import PictureDecoder
    from iblurry.live.quota import Limits, Refusal

    if not _too_large(path):
        return path
    channels, height, width = shape
    try:
        with _allow_large():
            decoder = PictureDecoder((channels, height, width), Limits(pixels=PIXELS))
            return decoder.decode(read_bytes(str(path)), str(path))
    except Refusal as refusal:
        raise DataError(str(refusal)) from refusal


def _too_large(path: Path) -> bool:
    """Tells whether a picture is too large, by its bytes or by the size in its header."""
    from PIL import Image

    from iblurry.live.client import BYTES, encoded_size
    from iblurry.live.http.pictures import FORMATS
    from iblurry.live.quota import Limits

    if encoded_size(path) > BYTES:
        return True
    try:
        with _allow_large(), Image.open(path, formats=FORMATS) as picture:
            return picture.width * picture.height > Limits().pixels
    except Image.DecompressionBombError:
        return True
    except Exception:  # decoders raise all kinds of errors for corrupt data; the service will refuse it
        return False


@contextmanager
def _allow_large() -> Iterator[None]:
    """These are the user's own pictures, not a stranger's."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def _with_label(place: str, label: str) -> Iterator[LabelledFile]:
    path = Path(place).expanduser()
    if not path.exists():
        raise DataError(f"There is no picture {place}; with --label, give pictures or folders of pictures.")
    files = [path] if path.is_file() else _pictures(path)
    return (LabelledFile(label, files, row) for row in range(len(files)))


def _by_class(place: str, part: str) -> Iterator[LabelledFile]:
    path = Path(place).expanduser()
    if path.is_dir():
        return _classes_in(path / part if (path / part).is_dir() else path)
    if path.is_file() and path.suffix.lower() in ENDINGS:
        raise InputError(f"{place} is a single picture; say what it shows with --label TEXT.")
    from iblurry.data.load import load

    data = load(place)
    split = data.test if part == "test" else data.train
    return (LabelledFile(data.classes[number], split.images, row) for row, number in enumerate(split.labels.tolist()))


def _classes_in(root: Path) -> Iterator[LabelledFile]:
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not folders:
        raise DataError(f"{root} has no folders of classes; put pictures in {root}/<class>/, or give --label TEXT.")
    class_labels(folder.name for folder in folders)
    for folder in folders:
        files = _pictures(folder)
        yield from (LabelledFile(folder.name, files, row) for row in range(len(files)))


def _pictures(folder: Path) -> list[Path]:
    """Sorted, including those in folders inside it."""
    from iblurry.data.sources.folder import list_files

    found = [folder / name for name in list_files(folder, "") if name.lower().endswith(ENDINGS)]
    if not found:
        raise DataError(f"{folder} has no pictures ({', '.join(ENDINGS)}); add some, or leave the folder out.")
    return found
