"""Checkpoints: the whole state of a run in one safetensors file that is either complete and intact or not used."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import save as to_safetensors

from iblurry.errors import CheckpointError
from iblurry.files import full_disk_error, write_file

FORMAT = 2  # 2: with what was spent (by purpose: one that came later is missing, and 0)
NAME = re.compile(r"checkpoint-(\d{12,})\.safetensors")
DTYPES = {  # by their names in a safetensors header
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
State = dict[Any, Any]  # nested dict, list, tuple of tensors, numpy arrays, int, float, str, bool, None
Contents = Mapping[str, tuple[str, list[int], memoryview | bytearray]]  # of tensors, by name: dtype, shape, bytes


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
    data = _pack(state, at)
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
        Gives a reason against a state, or None.
    remedy : str
        A sentence for the CheckpointError that is raised if there are checkpoints and none can be used.
    """
    folder = Path(folder)
    refused: list[tuple[Path, str]] = []
    for at, path in _newest_first(folder):
        try:
            state = _unpack(path.read_bytes(), at)
        except (OSError, CheckpointError) as error:
            refused.append((path, f"is damaged ({error})"))
            continue
        reason = accept(state)
        if reason is None:
            skipped = [f"{bad.name} {why}; the previous good one, {path.name}, is used." for bad, why in refused]
            return LoadedCheckpoint(at, state, path, skipped)
        refused.append((path, f"does not fit ({reason})"))
    if refused:
        reasons = "; ".join(f"{path.name} {why}" for path, why in refused)
        raise CheckpointError(f"No checkpoint in {folder} can be used: {reasons}. {remedy}")
    return None


def bytes_of(state: State) -> int:
    """About the size of its checkpoint: that of its tensors, and of the text beside them."""
    tensors: dict[str, torch.Tensor] = {}
    text = _canonical(_describe(state, "", tensors))
    return sum(each.nbytes for each in tensors.values()) + 2 * len(text)


def _newest_first(folder: Path) -> list[tuple[int, Path]]:
    found = [(int(match[1]), path) for path in folder.glob("*") if (match := NAME.fullmatch(path.name))]
    return sorted(found, reverse=True)


def _pack(state: State, at: int) -> bytes:
    """The file: tensors under their paths, and one metadata entry (the order of several is not fixed) for the rest."""
    tensors: dict[str, torch.Tensor] = {}
    about = {"at": at, "format": FORMAT, "tree": _describe(state, "", tensors)}
    contents = {name: (DTYPE_NAMES[each.dtype], list(each.shape), _raw(each)) for name, each in tensors.items()}
    about["digest"] = _digest(about, contents)
    return to_safetensors(tensors, {"iblurry": _canonical(about)})


def _unpack(data: bytes, at: int) -> State:
    """The state in a file; CheckpointError unless every bit of it is as it was written."""
    try:
        entries = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        text = header["__metadata__"]["iblurry"]
        about = json.loads(text)
        canonical = _canonical(about)
        digest, version = about.pop("digest"), about["format"]
    except (safetensors.SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"it is not a whole checkpoint: {error}") from error
    if version != FORMAT:
        raise CheckpointError(f"its format is {version!r}, and this version of iblurry reads {FORMAT}")
    contents = {name: (entry["dtype"], entry["shape"], entry["data"]) for name, entry in entries.items()}
    # The text is compared as well: 1e-05 and 1E-05 are the same number, but only one of them was written.
    if text != canonical or digest != _digest(about, contents):
        raise CheckpointError("its digest does not match its content")
    if about["at"] != at:
        raise CheckpointError(f"it was saved at sample {about['at']}, which is not what its name says")
    return dict(_rebuild(about["tree"], contents))


def _digest(about: dict[str, Any], contents: Contents) -> str:
    """SHA-256 over the description and each tensor's name, dtype, shape and bytes."""
    digest = hashlib.sha256(_canonical(about).encode())
    for name, (dtype, shape, raw) in sorted(contents.items()):
        digest.update(f"\n{_canonical([name, dtype, list(shape)])}\n".encode())
        digest.update(raw)
    return digest.hexdigest()


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _describe(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> object:
    """A JSON tree of a value: objects with one key, its type, for what JSON lacks; tensors go to `tensors`."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is list:
        return [_describe(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]
    if type(value) is tuple:
        return {"tuple": [_describe(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        if len({type(key) for key in value}) > 1 or any(type(key) not in (str, int) for key in value):
            raise TypeError(f"The keys of state{path} must be all strings or all whole numbers, not {list(value)!r}.")
        return {"dict": [[key, _describe(value[key], f"{path}/{_escape(key)}", tensors)] for key in sorted(value)]}
    if isinstance(value, torch.Tensor):
        # A copy of its own for each: safetensors refuses tensors that share memory.
        copy = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        return {"tensor": _put(copy, path, tensors)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        copy = torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C", copy=True))
        return {"array": _put(copy, path, tensors)}
    raise TypeError(
        f"A checkpoint cannot hold state{path}, a {type(value).__name__}; make it a tensor or a plain value."
    )


def _put(tensor: torch.Tensor, path: str, tensors: dict[str, torch.Tensor]) -> str:
    name = path.removeprefix("/")
    if tensor.dtype not in DTYPE_NAMES or name == "__metadata__":  # safetensors keeps that name for itself
        raise TypeError(f"A checkpoint cannot hold state{path}, a tensor of {tensor.dtype}.")
    tensors[name] = tensor
    return name


def _escape(key: str | int) -> str:
    """A key as one step of a path (as in JSON pointers), so that no two paths are the same."""
    return str(key).replace("~", "~0").replace("/", "~1")


def _raw(tensor: torch.Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _rebuild(node: Any, contents: Contents) -> Any:
    """The value of which `_describe` made this tree."""
    if isinstance(node, list):
        return [_rebuild(item, contents) for item in node]
    if not isinstance(node, dict):
        return node
    ((kind, inner),) = node.items()
    match kind:
        case "float":
            return float(inner)
        case "tuple":
            return tuple(_rebuild(item, contents) for item in inner)
        case "dict":
            return {key: _rebuild(item, contents) for key, item in inner}
        case "tensor":
            return _tensor(*contents[inner])
        case "array":
            return _tensor(*contents[inner]).numpy()
    raise CheckpointError(f"it holds a {kind!r}, which this version of iblurry does not know")


def _tensor(dtype: str, shape: list[int], raw: memoryview | bytearray) -> torch.Tensor:
    """A tensor with memory of its own, aligned as torch aligns it."""
    if not raw:
        return torch.empty(shape, dtype=DTYPES[dtype])
    return torch.frombuffer(raw, dtype=DTYPES[dtype]).clone().reshape(shape)
