"""Checkpoints: the whole state of a run or service in one safetensors file that is complete and intact or not used."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import torch

from iblurry.errors import CheckpointError, IblurryError
from iblurry.storage.files import full_disk_error, write_file
from iblurry.storage.tensor_file import State, pack, unpack
from iblurry.storage.untrusted import MALFORMED, reason

FORMAT = 2  # 2: with what was spent (by purpose: one that came later is missing, and 0)
NAME = re.compile(r"checkpoint-(\d{12,})\.safetensors")


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The newest intact checkpoint, its tensors on the CPU."""

    at: int  # samples seen
    state: State
    path: Path
    skipped: list[str]  # a sentence for every newer one that could not be used


def save(folder: Path | str, state: State, *, at: int, trusted: Collection[int] | None = None) -> Path:
    """Write `checkpoint-<at>.safetensors` atomically, and delete all others but the newest trusted one before it.

    Equal states give equal bytes, whatever the order of their dicts and the memory layout of their tensors.

    Parameters
    ----------
    folder : Path or str
        Where checkpoints are kept.
    state : State
        Nested dicts, lists and tuples of tensors, arrays and plain values.
    at : int
        Samples seen.
    trusted : collection of int, optional
        Samples of the checkpoints that this process saved or loaded; None: all. Others may have been refused.
    """
    folder = Path(folder)
    path = folder / f"checkpoint-{at:012d}.safetensors"
    data = pack(state, {"at": at, "format": FORMAT})
    with full_disk_error(folder):
        for stale in folder.glob("checkpoint-*.tmp"):  # what a run that was killed while writing left behind
            stale.unlink()
        write_file(path, data)
    found = _newest_first(folder)
    fallback = next((number for number, _ in found if number < at and (trusted is None or number in trusted)), at)
    for number, other in found:  # those after this one were refused when the run resumed from before them
        if number not in (at, fallback):
            other.unlink()
    return path


def load_latest(
    folder: Path | str,
    *,
    accept: Callable[[State], str | None] = lambda state: None,
    remedy: str = "Delete the folder to start again.",
) -> LoadedCheckpoint | None:
    """Load the newest intact checkpoint that is accepted; None if none was ever saved.

    Parameters
    ----------
    folder : Path or str
        Where checkpoints are kept.
    accept : callable
        Takes a state into use and gives None; or gives a reason against it, or raises what malformed states lead to.
    remedy : str
        A sentence for the CheckpointError that is raised if there are checkpoints and none can be used.
    """
    folder = Path(folder)
    refused: list[tuple[Path, str]] = []
    for at, path in _newest_first(folder):
        try:
            state, about = unpack(path.read_bytes(), format=FORMAT)
            if about.get("at") != at:
                raise CheckpointError(f"it was saved at sample {about.get('at')}, which is not what its name says")
        except (OSError, CheckpointError) as error:
            refused.append((path, f"is damaged ({error})"))
            continue
        try:
            against = accept(state)
        except torch.OutOfMemoryError:
            raise
        except (IblurryError, *MALFORMED) as error:
            against = reason(error)
        if against is None:
            skipped = [f"{bad.name} {why}; the previous good one, {path.name}, is used." for bad, why in refused]
            return LoadedCheckpoint(at, state, path, skipped)
        refused.append((path, f"does not fit ({against})"))
    if refused:
        reasons = "; ".join(f"{path.name} {why}" for path, why in refused)
        raise CheckpointError(f"No checkpoint in {folder} can be used: {reasons}. {remedy}")
    return None


def _newest_first(folder: Path) -> list[tuple[int, Path]]:
    found = [(int(match[1]), path) for path in folder.glob("*") if (match := NAME.fullmatch(path.name))]
    return sorted(found, reverse=True)
