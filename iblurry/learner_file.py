"""A learner in one safetensors file, or in the checkpoints of a run or service: its arguments and its state."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iblurry import checkpoint
from iblurry.archive import State, pack, unpack
from iblurry.augment.transform import Transform, check_transforms
from iblurry.errors import CheckpointError, DataError, FolderError, IblurryError, InputError
from iblurry.files import write_errors, write_file
from iblurry.learner_arguments import as_path
from iblurry.method import Method
from iblurry.network.registry import network_key
from iblurry.version import __version__

LOGGER = logging.getLogger(__name__)
FORMAT = 1
KIND = "learner"
WANTED = "a file that Learner.save wrote, or the folder of a run or service"


def write(path: str | os.PathLike[str], arguments: Mapping[str, Any], state: State, *, initial: State | None) -> None:
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
    """
    place = as_path(path)
    about = {"kind": KIND, "format": FORMAT, "version": __version__, "arguments": to_json(arguments)}
    data = pack({"state": state, "initial": initial}, about)
    with write_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(place, data)


def read(path: str | os.PathLike[str], **given: Any) -> tuple[dict[str, Any], State, State | None]:
    """Arguments, state and initial weights in a file; CheckpointError unless it is whole and a learner's.

    Parameters
    ----------
    path : path
        What `write` wrote, or the folder of a run or service, of which the newest intact checkpoint is read.
    **given
        Arguments that replace those in the file, unless None.
    """
    place = as_path(path)
    if place.is_dir():
        arguments, state, initial = *_read_folder(place), None  # first weights are made again from the arguments
    else:
        arguments, state, initial = _read_file(place)
    return from_json(arguments) | {name: value for name, value in given.items() if value is not None}, state, initial


def _read_folder(place: Path) -> tuple[dict[str, Any], State]:
    loaded = checkpoint.load_latest(place, remedy="Put back a good copy of the folder.")
    if loaded is None:
        raise FolderError(
            f"{place} has no checkpoint, so there is no learner in it; give the folder of a run or of a service that "
            "has learnt something."
        )
    for sentence in loaded.skipped:
        LOGGER.warning(sentence)
    if "arguments" not in loaded.state:
        raise CheckpointError(
            f"{loaded.path} is of an earlier version, which did not note how its learner was made; go on with the run "
            "or service, whose next checkpoint does."
        )
    return loaded.state["arguments"], loaded.state["learner"]


def _read_file(place: Path) -> tuple[dict[str, Any], State, State | None]:
    try:
        data = place.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise DataError(f"{str(place)!r} cannot be read ({error}); give {WANTED}.") from error
    try:
        state, about = unpack(data, format=FORMAT)
    except CheckpointError as error:
        raise CheckpointError(f"{place} cannot be used: {error}. Give {WANTED}.") from error
    if about.get("kind") != KIND:
        raise CheckpointError(f"{place} holds no learner; give {WANTED}.")
    return about["arguments"], state["state"], state["initial"]


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
