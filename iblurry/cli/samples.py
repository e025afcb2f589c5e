"""Labelled images to send: pictures in folders, single ones, data sets; in an order from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from iblurry.errors import DataError, InputError

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")  # the kinds of pictures a service reads


class Sample(NamedTuple):
    """A label, and the row of its image in something that holds images or paths of pictures."""

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


def gather(places: Sequence[str], label: str | None) -> list[Sample]:
    """All there is at these places: pictures that have one label, or folders by class, .npz files and data sets."""
    if label is not None and not _is_text(label):
        raise InputError(f"--label {_shown(label)} is not UTF-8; give another TEXT.")
    found = [_by_class(place) if label is None else _labelled(place, label) for place in places]
    return [sample for samples in found for sample in samples]


def arrange(samples: Sequence[Sample], *, seed: int | None, limit: int | None) -> list[Sample]:
    """The first ones of a random order, or without a seed of the order they have."""
    if seed is None:
        return list(samples[:limit])
    from iblurry.rng import Rng

    return [samples[row] for row in Rng(seed).permutation("send", 0, len(samples))[:limit].tolist()]


def _labelled(place: str, label: str) -> Iterator[Sample]:
    path = Path(place).expanduser()
    if not path.exists():
        raise DataError(f"There is no picture {place}; with --label, give pictures or folders of them.")
    files = [path] if path.is_file() else _pictures(path)
    return (Sample(label, files, row) for row in range(len(files)))


def _by_class(place: str) -> Iterator[Sample]:
    path = Path(place).expanduser()
    if path.is_dir():
        return _classes_in(path / "train" if (path / "train").is_dir() else path)
    if path.is_file() and path.suffix.lower() in ENDINGS:
        raise InputError(f"{place} is a single picture; say what it shows with --label TEXT.")
    from iblurry.data.load import load

    data = load(place)
    labels = data.train.labels.tolist()
    return (Sample(data.classes[number], data.train.images, row) for row, number in enumerate(labels))


def _classes_in(root: Path) -> Iterator[Sample]:
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not folders:
        raise DataError(f"{root} has no folders of classes; put pictures in {root}/<class>/, or give --label TEXT.")
    for folder in folders:
        if not _is_text(folder.name):
            raise DataError(f"The name of the folder {_shown(folder)} is its label, and is not UTF-8; rename it.")
    for folder in folders:
        files = _pictures(folder)
        yield from (Sample(folder.name, files, row) for row in range(len(files)))


def _pictures(folder: Path) -> list[Path]:
    """Sorted, from folders inside it, too."""
    from iblurry.data.sources.folder import list_files

    found = [folder / name for name in list_files(folder, "") if name.lower().endswith(ENDINGS)]
    if not found:
        raise DataError(f"{folder} has no pictures ({', '.join(ENDINGS)}); add some, or leave the folder out.")
    return found


def _is_text(name: str) -> bool:
    """Whether all its bytes were letters."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _shown(name: object) -> str:
    return str(name).encode(errors="backslashreplace").decode()
