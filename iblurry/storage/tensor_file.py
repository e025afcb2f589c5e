"""Archives: nested states of tensors and plain values as one safetensors file, equal bytes for equal states."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import save as to_safetensors

from iblurry.errors import CheckpointError
from iblurry.storage.untrusted import MALFORMED, parse_json, reason

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


def pack(state: State, about: Mapping[str, Any]) -> bytes:
    """The file: tensors under their paths, and one metadata entry (the order of several is not fixed) for the rest.

    Equal states give equal bytes, whatever the order of their dicts and the memory layout of their tensors.

    Parameters
    ----------
    state : State
        Nested dicts, lists and tuples of tensors, arrays and plain values.
    about : mapping
        Plain values beside it; "format" is the number that `unpack` compares.
    """
    tensors: dict[str, torch.Tensor] = {}
    described = dict(about) | {"tree": _describe(state, "", tensors)}
    contents = {name: (DTYPE_NAMES[each.dtype], list(each.shape), _raw(each)) for name, each in tensors.items()}
    described["digest"] = _digest(described, contents)
    return to_safetensors(tensors, {"iblurry": _canonical(described)})


def unpack(data: bytes, *, format: int) -> tuple[State, dict[str, Any]]:
    """The state in a file and what is written about it; CheckpointError unless every bit is as it was written.

    Parameters
    ----------
    data : bytes
        The content of the file.
    format : int
        The format that can be read.
    """
    try:
        entries = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
        header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
        text = header["__metadata__"]["iblurry"]
        about = parse_json(text.encode())
        canonical = _canonical(about)
        digest, version = about.pop("digest"), about["format"]
    except (safetensors.SafetensorError, *MALFORMED) as error:
        raise CheckpointError(f"it is not a whole checkpoint: {reason(error)}") from error
    if version != format:
        raise CheckpointError(
            f"its format is {version!r}, and this version of iblurry reads {format}: use the version that wrote it"
        )
    contents = {name: (entry["dtype"], entry["shape"], entry["data"]) for name, entry in entries.items()}
    # The text is compared as well: 1e-05 and 1E-05 are the same number, but only one of them was written.
    if text != canonical or digest != _digest(about, contents):
        raise CheckpointError("its digest does not match its content")
    try:
        return dict(_rebuild(about.pop("tree"), contents)), about
    except MALFORMED as error:
        raise CheckpointError(f"its tree is malformed ({reason(error)})") from error


def bytes_of(state: State) -> int:
    """About the size of its checkpoint: that of its tensors, and of the text beside them."""
    tensors: dict[str, torch.Tensor] = {}
    text = _canonical(_describe(state, "", tensors))
    return sum(each.nbytes for each in tensors.values()) + 2 * len(text)


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
    raise TypeError(f"A file cannot hold state{path}, a {type(value).__name__}; make it a tensor or a plain value.")


def _put(tensor: torch.Tensor, path: str, tensors: dict[str, torch.Tensor]) -> str:
    name = path.removeprefix("/")
    if tensor.dtype not in DTYPE_NAMES or name == "__metadata__":  # safetensors keeps that name for itself
        raise TypeError(f"A file cannot hold state{path}, a tensor of {tensor.dtype}.")
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
