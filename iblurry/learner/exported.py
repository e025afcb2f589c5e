"""Reads an exported network: listed tensor operators only, since torch.export.load runs code that a file brings."""

from __future__ import annotations

import operator
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.errors import DataError, InputError
from iblurry.learner.config import Label
from iblurry.storage.files import as_path
from iblurry.storage.untrusted import parse_json, reason

KEY = "iblurry.json"  # of the extra file in a .pt2, and of the metadata of an .onnx
SCHEMA = 8  # of torch's models/model.json
LISTED = """
_adaptive_avg_pool2d _log_softmax _softmax _to_copy _unsafe_view abs acos adaptive_avg_pool1d adaptive_avg_pool2d
adaptive_max_pool2d add addcdiv addcmul addmm alias all amax amin any arange argmax argmin argsort asin atan atan2
avg_pool1d avg_pool2d baddbmm batch_norm bitwise_and bitwise_not bitwise_or bitwise_xor bmm broadcast_to cat ceil
celu chunk clamp clamp_max clamp_min clone concat constant_pad_nd contiguous conv1d conv2d conv_transpose2d
convolution copy cos cosh cosine_similarity cumprod cumsum detach div dot dropout einsum elu embedding eq erf exp
expand expand_as expm1 eye feature_dropout fill flatten flip floor floor_divide fmod frobenius_norm full full_like
gather ge gelu glu group_norm gru gt hardsigmoid hardswish hardtanh index index_select instance_norm isfinite isinf
isnan layer_norm le leaky_relu lift_fresh_copy linalg_norm linalg_vector_norm linear log log10 log1p log2
log_sigmoid log_softmax logical_and logical_not logical_or logsumexp lstm lt masked_fill matmul max max_pool1d
max_pool2d max_pool2d_with_indices maximum mean min minimum mish mm mul mv narrow native_group_norm
native_layer_norm ne neg new_full new_ones new_zeros norm numpy_T one_hot ones ones_like outer pad permute
pixel_shuffle pixel_unshuffle pow prelu prod reciprocal reflection_pad2d relu relu6 remainder repeat
repeat_interleave replication_pad2d reshape rms_norm roll round rsqrt rsub scalar_tensor
scaled_dot_product_attention scatter scatter_add select selu sigmoid sign silu sin sinh slice softmax softplus sort
split split_with_sizes sqrt square squeeze stack std sub sum sym_numel sym_size t tan tanh tensor_split tile to topk
transpose tril triu type_as unbind unflatten unfold unsqueeze upsample_bilinear2d upsample_nearest2d var view
view_as where zeros zeros_like
"""  # of torch.ops.aten, also in place (relu_): arithmetic that checks its sizes and touches no file
OPERATORS = frozenset(LISTED.split())
CHECKS = re.compile(r"torch\.ops\.aten\.(_assert_\w+|sym_constrain_range\w*)\.\w+")  # without a result, so left out
OF_SIZES = re.compile(r"_operator\.(add|sub|mul|floordiv|mod|neg|getitem|eq|ne|[gl][et])")
DTYPES: dict[Any, torch.dtype] = dict(enumerate((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), 1))
DTYPES |= {6: torch.float16, 7: torch.float32, 8: torch.float64, 12: torch.bool, 13: torch.bfloat16}  # numbers in files
ENUMS: dict[str, dict[Any, Any]] = {
    "as_scalar_type": DTYPES,
    "as_layout": {7: torch.strided},
    "as_memory_format": {1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format},
}
LITERALS = {"as_int": int, "as_float": float, "as_bool": bool, "as_string": str}


class ExportedModel:
    """A network that was exported to a .pt2, with its class names; `load_exported` makes it.

    Parameters
    ----------
    graph : callable
        Images to logits.
    about : dict
        The content of its extra file: "labels", "image" or "columns", "mean", "std", "method", "seen", "version".
    """

    def __init__(self, graph: Callable[[Tensor], Tensor], about: dict[str, Any]) -> None:
        self.about = about
        self.labels: list[Label] = about["labels"]
        self._graph = graph
        columns = about.get("columns")
        self._shape = tuple(about["image"]) if columns is None else (columns,)
        self._dtype = torch.uint8 if columns is None else torch.float32

    @torch.no_grad()
    def logits(self, images: Tensor | NDArray[np.generic]) -> Tensor:
        """(B, C, H, W) uint8 to (B, classes), in the order of `labels`; a table's input is (B, columns) float32."""
        given = torch.as_tensor(images)
        if given.shape[1:] != self._shape or given.dtype != self._dtype:
            wanted = ", ".join(map(str, ("B", *self._shape)))
            raise InputError(f"Images are {given.dtype} {tuple(given.shape)}; give {self._dtype} ({wanted}).")
        return self._graph(given)

    def predict(self, images: Tensor | NDArray[np.generic]) -> list[Label]:
        """The most likely label of each image."""
        return [self.labels[row] for row in self.logits(images).argmax(1).tolist()]


def load_exported(path: str | os.PathLike[str]) -> ExportedModel:
    """A network that `Learner.export` or `iblurry export` wrote, with its class names; it runs on the CPU.

    Parameters
    ----------
    path : path
        NAME.pt2; DataError if it is damaged, something else, or made of more than tensors and listed operators.
    """
    place = as_path(path)
    if not place.is_file():
        raise DataError(f"{place} is not a file; give a .pt2 that Learner.export wrote.")
    try:
        model = _read(place)
        found = model.logits(torch.zeros(1, *model._shape, dtype=model._dtype)).shape
        if found != (1, len(model.labels)):
            raise DataError(f"its output has the shape {tuple(found)} for {len(model.labels)} labels")
        return model
    except Exception as error:  # whatever a damaged archive, or an operator that is given nonsense, raises
        raise DataError(f"{place} cannot be used ({reason(error)}); give a .pt2 that Learner.export wrote.") from error


def _read(path: Path) -> ExportedModel:
    """Reads an archive, of which only JSON and the bytes of tensors are looked at."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        root = members[0].filename.partition("/")[0]
        if len({member.filename for member in members}) < len(members):
            raise DataError("two of its members have one name")
        if sum(member.file_size for member in members) > path.stat().st_size:
            raise DataError("its members are compressed or overlap")
        tensors: dict[str, Tensor] = {}
        for kind in ("weights", "constants"):
            config = parse_json(archive.read(f"{root}/data/{kind}/model_{kind}_config.json"))["config"]
            stored: dict[str, Tensor] = {}
            for name, about in config.items():
                member, meta = about["path_name"], about["tensor_meta"]
                if about["use_pickle"] or meta is None:
                    raise DataError(f"{name!r:.80} is pickled, which could run code")
                if member not in stored:
                    stored[member] = _tensor(archive.read(f"{root}/data/{kind}/{member}"), DTYPES[meta["dtype"]])
                sizes, strides = ([one["as_int"] for one in meta[each]] for each in ("sizes", "strides"))
                tensors[name] = stored[member].as_strided(sizes, strides, meta["storage_offset"]["as_int"])
        program = parse_json(archive.read(f"{root}/models/model.json"))
        about = parse_json(archive.read(f"{root}/extra/{KEY}"))
    if (version := program["schema_version"]["major"]) != SCHEMA:
        raise DataError(f"torch wrote it in format {version!r:.20}, and this version of iblurry reads {SCHEMA}")
    return ExportedModel(_Graph(program["graph_module"], tensors), about)


def _tensor(raw: bytes, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(bytearray(raw), dtype=dtype).clone() if raw else torch.empty(0, dtype=dtype)


class _Name(str):
    """That of a value in the graph."""


class _Step(NamedTuple):
    call: Callable[..., Any]
    arguments: list[Any]
    options: dict[str, Any]
    result: Any
    last_used: set[_Name]  # values that no later step reads


class _Graph:
    """Calls one operator after the other, as torch's JSON lists them."""

    def __init__(self, module: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        signature, self._known, inputs = module["signature"], {}, []
        for spec in signature["input_specs"]:
            ((kind, about),) = spec.items()
            if kind == "user_input":
                inputs.append(_argument(about["arg"]))
            else:
                self._known[_argument(about["arg"])] = tensors[about[f"{kind}_name"]]
        (self._input,) = inputs
        (self._output,) = (_argument(s["user_output"]["arg"]) for s in signature["output_specs"] if "user_output" in s)
        kept = {self._output, *self._known}
        self._steps: list[_Step] = []
        for node in reversed(module["graph"]["nodes"]):
            if not CHECKS.fullmatch(node["target"]):
                step = _step(node)
                step.last_used.update({*_names([step.arguments, *step.options.values(), step.result])} - kept)
                kept |= step.last_used
                self._steps.insert(0, step)

    def __call__(self, images: Tensor) -> Tensor:
        values: dict[str, Any] = self._known | {self._input: images}
        for step in self._steps:
            options = {name: _filled(value, values) for name, value in step.options.items()}
            _bind(step.result, step.call(*_filled(step.arguments, values), **options), values)
            for name in step.last_used:
                values.pop(name)
        answers: Tensor = values[self._output]
        return answers


def _step(node: dict[str, Any]) -> _Step:
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    for given in node["inputs"]:
        if given["kind"] == 1:  # by its position
            arguments.append(_argument(given["arg"]))
        else:
            options[given["name"]] = _argument(given["arg"])
    results = [_argument(one) for one in node["outputs"]]
    return _Step(_operator(node["target"]), arguments, options, results[0] if len(results) == 1 else results, set())


def _operator(target: str) -> Callable[..., Any]:
    """DataError unless it is listed."""
    found: Any = None
    if (match := re.fullmatch(r"torch\.ops\.aten\.(\w+?)(_?)\.(\w+)", target)) and match[1] in OPERATORS:
        found = getattr(getattr(torch.ops.aten, match[1] + match[2]), match[3])
    elif match := OF_SIZES.fullmatch(target):
        return getattr(operator, match[1])  # type: ignore[no-any-return]
    if not isinstance(found, torch._ops.OpOverload):
        raise DataError(f"it calls {target!r:.80}, which is not on the list; if you trust it, use torch.export.load")
    return found


def _argument(given: dict[str, Any]) -> Any:
    """A literal, a name, or a list of these; ValueError and KeyError for what is neither, such as a custom object."""
    ((kind, value),) = given.items()
    return _value(kind, value)


def _value(kind: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(kind, one) for one in value]
    if kind == "as_none":
        return None
    if kind == "as_device":
        return torch.device("cpu")
    if kind in ENUMS:
        return ENUMS[kind][value]
    if isinstance(value, dict):  # {"as_tensor": {"name": ...}}, {"as_sym_int": {"as_int": ...}}
        return _argument(value)
    if kind in ("name", "as_name"):
        return _Name(value)
    literal = LITERALS[kind.removesuffix("_lists").removesuffix("s")]
    return literal(value) if literal is float or type(value) is literal else LITERALS[f"{value!r:.80}"]


def _names(value: Any) -> Iterator[_Name]:
    if isinstance(value, list):
        for one in value:
            yield from _names(one)
    elif type(value) is _Name:
        yield value


def _filled(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_filled(one, values) for one in value]
    return values[value] if type(value) is _Name else value


def _bind(name: Any, result: Any, values: dict[str, Any]) -> None:
    if isinstance(name, list):
        for one, each in zip(name, result, strict=True):
            _bind(one, each, values)
    elif type(name) is _Name:
        values[name] = result
