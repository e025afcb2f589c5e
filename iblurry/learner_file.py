"""A learner in one safetensors file: its arguments as JSON and its state as tensors; read intact or refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from iblurry.archive import State, pack, unpack
from iblurry.augment.transform import Transform, check_transforms
from iblurry.errors import CheckpointError, DataError, IblurryError, InputError
from iblurry.files import write_errors, write_file
from iblurry.learner_arguments import as_path
from iblurry.method import Method
from iblurry.network.registry import network_key
from iblurry.version import __version__

FORMAT = 1
KIND = "learner"


def write(
    path: str | os.PathLike[str],
    arguments: Mapping[str, Any],
    state: State,
    *,
    initial: State | None,
    frozen: State | None,
) -> None:
    """Writes a learner atomically; missing folders are made.

    Parameters
    ----------
    path : path
        The file.
    arguments : mapping
        Of the learner's constructor.
    state : State
        What `Learner.state_dict` returned.
    initial : State, optional
        The body's first weights, where refits start from them again.
    frozen : State, optional
        The weights of a body that is not trained, which the state does not have.
    """
    place = as_path(path)
    about = {"kind": KIND, "format": FORMAT, "version": __version__, "arguments": to_json(arguments)}
    data = pack({"state": state, "initial": initial, "frozen": frozen}, about)
    with write_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(place, data)


def read(path: str | os.PathLike[str], **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments, and "state", "initial" and "frozen" as `write` had them.

    CheckpointError unless the file is whole and a learner's.

    Parameters
    ----------
    path : path
        What `write` wrote.
    **given
        Arguments that replace those in the file, unless None.
    """
    place = as_path(path)
    try:
        data = place.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise DataError(f"{str(place)!r} cannot be read ({error}); give a file that Learner.save wrote.") from error
    try:
        state, about = unpack(data, format=FORMAT)
    except CheckpointError as error:
        raise CheckpointError(f"{place} cannot be used: {error}. Give a file that Learner.save wrote.") from error
    if about.get("kind") != KIND:
        raise CheckpointError(f"{place} holds no learner; give a file that Learner.save wrote.")
    arguments = from_json(about["arguments"]) | {name: value for name, value in given.items() if value is not None}
    return arguments, {"frozen": None} | state  # which the first files do not have


@contextmanager
def fitting(path: str | os.PathLike[str]) -> Iterator[None]:
    """InputError where a state does not fit the learner that was made for it, as with another network."""
    try:
        yield
    except IblurryError:
        raise
    except (RuntimeError, KeyError, ValueError, TypeError, IndexError) as error:
        why = " ".join(str(error).split())[:300]
        raise InputError(f"What {path} holds does not fit this network ({why}); give the network it had.") from error


def to_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a learner as data; a user's code is written `name@hash`."""
    return dict(arguments) | {
        "method": arguments["method"].to_json(),
        "image": list(arguments["image"]),
        "network": network_key(arguments["network"]),
        "augment": [transform.to_json() for transform in check_transforms(arguments["augment"])],
    }


def from_json(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that `to_json` described."""
    return dict(data) | {
        "method": Method.from_json(data["method"]),
        "image": tuple(data["image"]),
        "augment": tuple(Transform.from_json(one) for one in data["augment"]),
    }
