"""What is known of a run before its first query: its hyper-parameters, flat, and where it runs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iblurry.errors import DataError
from iblurry.experiment.folder import RunFolder

Value = str | int | float  # also bool, which is an int
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True)
class Facts:
    """A run, as its folder describes it."""

    name: str  # of the folder
    folder: Path
    parameters: dict[str, Value]  # fields of the experiment, by the paths that --set takes
    environment: dict[str, Value]  # versions, machine, device, threads


def facts(folder: RunFolder) -> Facts:
    """From experiment.json and environment.json alone: parts of one's own need no --import."""
    about = folder.about()
    try:
        parameters = hyper_parameters(about["experiment"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{folder.path / 'experiment.json'} holds no experiment that can be read: {error!r}. Put back a good copy."
        ) from error
    return Facts(folder.path.resolve().name, folder.path, parameters, folder.environment() or {})


def hyper_parameters(experiment: dict[str, Any]) -> dict[str, Value]:
    """Every field by its path: `memory`, `augment.pad`, `admission` (the part's name), `admission.step`.

    >>> hyper_parameters({"memory": 20, "method": {"name": "mine", "schedule": {"Constant": {"initial_lr": 0.1}}}})
    {'method': 'mine', 'memory': 20, 'schedule': 'Constant', 'schedule.initial_lr': 0.1}
    """
    method = dict(experiment["method"])
    settings = {name: value for name, value in experiment.items() if name != "method"}
    return {"method": method.pop("name"), **dict(_flat(settings)), **dict(_flat(method))}


def identity(name: str) -> str:
    """The name where only letters, digits, - and _ are allowed; what is left out is told apart by a checksum.

    >>> identity("clib-digits-1"), identity("cat/dog")
    ('clib-digits-1', 'cat-dog-6ef44cf1')
    """
    if name and len(name) <= 120 and SAFE.issuperset(name):
        return name
    plain = "".join(letter if letter in SAFE else "-" for letter in name[:100])
    return f"{plain}-{zlib.crc32(name.encode()):08x}"


def _flat(fields: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Value]]:
    for name, value in fields.items():
        path = f"{prefix}{name}"
        if isinstance(value, list):
            yield path, ",".join(str(_part(one)[0]) for one in value) or "none"
            value = {str(place): _part(one)[1] for place, one in enumerate(value)}
        elif not isinstance(value, dict):
            yield path, "none" if value is None else value
            continue
        elif (part := _part(value)) != (value, {}):
            yield path, part[0]
            value = part[1]
        yield from _flat(value, f"{path}.")


def _part(value: Any) -> tuple[Any, dict[str, Any]]:
    """A part's name and its fields, of {"Uniform": {"count": 16}}; anything else is itself."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, fields),) = value.items()
        if isinstance(fields, dict):
            return name, fields
    return value, {}
