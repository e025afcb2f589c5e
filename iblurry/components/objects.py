"""Objects that a program brings (a Dataset, an nn.Module, a callable): kept in this process under `name@hash`.

An experiment is data, so it holds the name only. The hash is of the content: another object is another name, and a run
of it another run. `launch` sends the objects of its experiments to worker processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iblurry.errors import InputError

_objects: dict[str, Any] = {}


def keep(name: str, content_hash: str, value: Any) -> str:
    """Keeps an object for as long as the process lives, and returns its key, `name@hash`.

    Parameters
    ----------
    name : str
        What tables and folders call it.
    content_hash : str
        Of everything in it that decides a result; see `iblurry.components.code_hash.content_hash`.
    value : object
        Must not be changed afterwards.
    """
    key = f"{name}@{content_hash}"
    _objects.setdefault(key, value)
    return key


def kept(key: str) -> Any | None:
    """The object of this key, or None."""
    return _objects.get(key)


def fetch(key: str, kind: str, remedy: str) -> Any:
    """The object of this key; InputError with the remedy if this process was never given it."""
    if key not in _objects:
        raise InputError(
            f"The {kind} {key!r} was an object of the program that ran it, and is not available; {remedy}."
        )
    return _objects[key]


def select(keys: Iterable[str]) -> dict[str, Any]:
    """Returns the objects of those keys that are kept here: what a worker process must be sent."""
    return {key: _objects[key] for key in keys if key in _objects}


def receive(objects: dict[str, Any]) -> None:
    """Keeps what another process selected."""
    _objects.update(objects)
