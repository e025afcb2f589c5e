"""Places to read from and to write to, looked at before the work instead of after it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from iblurry.errors import InputError

FIGURES = (".png", ".svg", ".pdf")


def check_folder(path: Path, given: str) -> None:
    """Raises unless files can be put into this folder, which need not be there yet; `given` names it in a sentence."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise InputError(f"{given}: {there} is a file, not a folder; give another place.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{given}: {there} is not yours to write to; give another place.")


def check_figure(path: Path, given: str) -> None:
    """Raises unless a figure can be drawn into this file."""
    if path.suffix.lower() not in FIGURES:
        raise InputError(f"The figure {path.name!r} ends in {path.suffix!r}; end it in .png, .svg or .pdf.")
    if path.is_dir():
        raise InputError(f"{given} is a folder; give the name of a file.")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"{given} is not yours to write to; give another file.")
    check_folder(path.parent, given)


def run_folders(places: Iterable[Path]) -> list[Path]:
    """The folders of runs that are meant by their names, or by those of folders of them; each once."""
    first: dict[Path, Path] = {}
    for place in places:
        found = [place] if (place / "experiment.json").exists() else _inside(place)
        for folder in found:
            first.setdefault(folder.resolve(), folder)
    return list(first.values())


def _inside(path: Path) -> list[Path]:
    found = sorted(child.parent for child in path.glob("*/experiment.json"))
    if not found:
        raise InputError(f"{path} is no run's folder and holds none; name a folder that `iblurry run` wrote.")
    return found
