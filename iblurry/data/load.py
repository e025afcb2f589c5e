"""One line names the data: a source, a path, and options; what was imported once lies in the data home."""

from __future__ import annotations

import os
import re
from numbers import Integral, Real
from pathlib import Path

from iblurry.data.dataset import Dataset
from iblurry.data.sources.arrays import arrays, save
from iblurry.data.sources.catalogue import SOURCES, PublicFile, Source
from iblurry.errors import DataError, InputError, UnknownNameError

__all__ = ["SOURCES", "PublicFile", "Source", "data_home", "import_local", "load", "parse", "stored"]

Option = int | float


def load(spec: str, home: Path | None = None, **options: Option) -> Dataset:
    """The data set named by `spec`: a source, an .npz file or a folder of pictures, with options.

    >>> len(load("shapes:classes=4,train=5", test=2).train)
    20
    """
    name, path, written = parse(spec)
    twice = sorted(set(written) & set(options))
    if twice:
        raise InputError(f"The option {twice[0]!r} is given twice, in {spec!r} and beside it; give it once.")
    source = SOURCES[name]
    chosen = written | {key: _checked(source, key, value) for key, value in options.items()}
    if path is not None:
        return source.reader(path, **chosen)
    if not source.takes_path:
        return source.reader(**chosen)
    if not source.forms:
        raise InputError(f"The source {name!r} needs a path; write {name}:PATH.")
    place = stored(name, home)
    if not place.exists():
        raise DataError(
            f"There is no {name} in {place.parent}: run `iblurry data fetch {name}`, or "
            f"`iblurry data import {name} PATH` with a copy ({source.forms})."
        )
    return arrays(place)


def parse(spec: str) -> tuple[str, Path | None, dict[str, Option]]:
    """(source name, path if any, options) of PATH or SOURCE, with :PATH and key=value pairs where it takes them.

    >>> parse("shapes:classes=20,noise=0.2")
    ('shapes', None, {'classes': 20, 'noise': 0.2})
    """
    head, colon, tail = spec.partition(":")
    if colon and "/" not in head:
        source = _source(head)
        place, options = _split(tail)
    elif spec in SOURCES:
        source, place, options = SOURCES[spec], "", []
    else:
        # a path may itself hold commas and equals signs
        place, options = (spec, []) if Path(spec).expanduser().exists() else _split(spec)
        source = _source_of(place)
    if place and not source.takes_path:
        raise InputError(
            f"The source {source.name!r} reads no path, but {place!r} was given; its options are written "
            f"{source.name}:name=value with the names {', '.join(source.options) or '(none)'}."
        )
    chosen = {}
    for key, value in options:
        if key in chosen:
            raise InputError(f"The option {key!r} is given twice in {spec!r}; give it once.")
        chosen[key] = _checked(source, key, value)
    return source.name, Path(place).expanduser() if place else None, chosen


def data_home() -> Path:
    """Where imported data live: $IBLURRY_DATA, or ~/.cache/iblurry."""
    named = os.environ.get("IBLURRY_DATA")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "iblurry"


def stored(name: str, home: Path | None = None) -> Path:
    """Where the imported form of a source is, or would be."""
    return (home or data_home()) / f"{name}.npz"


def import_local(name: str, path: Path, home: Path | None = None) -> Path:
    """Reads a copy in any form its source accepts and stores it in the data home; returns the place."""
    source = _source(name)
    if not source.forms:
        importable = ", ".join(each.name for each in SOURCES.values() if each.forms)
        use = f"use {name}:PATH directly" if source.takes_path else "it is built in"
        raise InputError(f"There is nothing to import for {name!r}: {use}; import is for {importable}.")
    place = stored(name, home)
    save(source.reader(path), place)
    return place


def _split(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The path and the key=value pairs at the end of it."""
    words = text.split(",")
    pairs: list[tuple[str, str]] = []
    while words and re.fullmatch(r"\w+=[^/]*", words[-1]):
        key, _, value = words.pop().partition("=")
        pairs.insert(0, (key, value))
    return ",".join(words), pairs


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise UnknownNameError("data source", name, SOURCES)
    return SOURCES[name]


def _source_of(place: str) -> Source:
    if not place:
        return _source(place)
    path = Path(place).expanduser()
    if path.suffix == ".npz":
        return SOURCES["arrays"]
    if path.is_dir():
        return SOURCES["folder"]
    if path.exists():
        raise InputError(f"{place} is neither an .npz file nor a folder; say what it is, as in cifar10:{place}.")
    if "/" in place or place.startswith(("~", ".")):
        raise DataError(
            f"There is no file or folder {place}; give an .npz file, a folder of pictures or a source name."
        )
    return _source(place)


def _checked(source: Source, key: str, value: object) -> Option:
    kinds = source.options
    if key not in kinds:
        raise UnknownNameError(f"option of {source.name}", key, kinds)
    kind = kinds[key]
    if kind is bool:
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise InputError(f"The option {key} of {source.name} must be true or false, not {value!r}.")
    if isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            value = repr(value)
    elif isinstance(value, Integral):
        return kind(int(value))
    elif isinstance(value, Real) and (kind is float or float(value).is_integer()):
        return kind(float(value))
    wanted = "a whole number" if kind is int else "a number"
    raise InputError(f"The option {key} of {source.name} must be {wanted}, not {value}.")
