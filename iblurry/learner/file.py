"""A learner in one safetensors file, or in the checkpoints of a run or service: its arguments and its state."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from iblurry.augment.transform import Transform, check_transforms
from iblurry.errors import CheckpointError, DataError, FolderError, InputError
from iblurry.learner.arguments import as_path
from iblurry.methods.method import Method
from iblurry.network.registry import network_key
from iblurry.storage import checkpoint
from iblurry.storage.files import write_errors, write_file
from iblurry.storage.tensor_file import State, pack, unpack
from iblurry.version import __version__

if TYPE_CHECKING:
    from iblurry.learner.learner import Learner

LOGGER = logging.getLogger(__name__)
FORMAT = 1
KIND = "learner"
WANTED = "a file that Learner.save wrote, or the folder of a run or service"


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
        What `write` wrote, or the folder of a run or service, of which the newest intact checkpoint is read.
    **given
        Arguments that replace those in the file, unless None.
    """
    place = as_path(path)
    if place.is_dir():
        arguments, saved = _read_folder(place)
    else:
        arguments, saved = _read_file(place)
    return from_json(arguments) | {name: value for name, value in given.items() if value is not None}, saved


def _read_folder(place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    loaded = checkpoint.load_latest(place, remedy="Put back a good copy of the folder.")
    if loaded is None:
        raise FolderError(
            f"{place} has no checkpoint, so no learner can be loaded; give the folder of a run or of a service that "
            "has learnt something."
        )
    for sentence in loaded.skipped:
        LOGGER.warning(sentence)
    # first weights, and those of a frozen body, are made again from the arguments
    return loaded.state["arguments"], {"state": loaded.state["learner"], "initial": None, "frozen": None}


def _read_file(place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        data = place.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise DataError(f"{str(place)!r} cannot be read ({error}); give {WANTED}.") from error
    try:
        state, about = unpack(data, format=FORMAT)
    except CheckpointError as error:
        raise CheckpointError(f"{place} cannot be used: {error}. Give {WANTED}.") from error
    if about.get("kind") != KIND:
        raise CheckpointError(f"{place} is not a saved learner; give {WANTED}.")
    return about["arguments"], state


def fitted(state: State, learner: Learner, path: str | os.PathLike[str]) -> State:
    """A state for the rows that a learner's head has, as if it had had them from the beginning.

    Parameters
    ----------
    state : State
        What `Learner.state_dict` returned.
    learner : Learner
        A new one, whose head has as many rows or more; InputError if it has fewer.
    path : path
        Where the state was read, for the error.
    """
    rows, wanted = len(state["network"]["open"]), learner.context.network.rows
    if wanted < rows:
        raise InputError(f"classes={wanted} is less than the {rows} rows of the head in {path}; give at least {rows}.")
    if wanted == rows:
        return state
    like = learner.state_dict() | {"optimizer": learner.trainer.zero_state(state["optimizer"])}
    grown: State = _widened(state, like, (rows, wanted))
    return grown


def _widened(state: Any, like: Any, rows: tuple[int, int]) -> Any:
    """Tensors and lists with so many rows and so many wanted take the others from `like`."""
    if isinstance(state, dict) and isinstance(like, dict):
        return {name: _widened(value, like.get(name), rows) for name, value in state.items()}
    if isinstance(state, list) and isinstance(like, list) and (len(state), len(like)) == rows:
        return state + like[len(state) :]
    if not isinstance(state, Tensor) or not isinstance(like, Tensor) or state.dim() != like.dim():
        return state
    differing = {sizes for sizes in zip(state.shape, like.shape, strict=True) if sizes[0] != sizes[1]}
    if differing != {rows}:  # equal, or of another network, which `load_state_dict` refuses
        return state
    grown = like.clone().to(state.device)
    grown[tuple(slice(size) for size in state.shape)] = state
    return grown


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
