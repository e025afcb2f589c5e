"""Export: the network that answers as a file that needs no iblurry, with normalisation and class names inside."""

from __future__ import annotations

import json
import os
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from iblurry.compute import ComputeCounter
from iblurry.errors import IblurryError, InputError
from iblurry.learner.exported import KEY
from iblurry.network import EXPORTING
from iblurry.storage.files import as_path, replacing
from iblurry.version import __version__

if TYPE_CHECKING:
    from iblurry.learner.learner import Learner

FORMAT = 1
ENDINGS = (".pt2", ".onnx")
MOST_IMAGES = 65_535  # of one call; cuDNN's batch norm, where a learner is traced on a GPU, takes no more
CHECKED = 8  # images of each kind for which a new file must answer like the learner
ROUNDING = {"float32": 1e-3, "bfloat16": 0.1}  # of the largest logit, by which answers may differ
LIBRARIES = ("onnx", "onnxscript")  # the extra `onnx`


def export(learner: Learner, path: str | os.PathLike[str], *, columns: int | None = None) -> None:
    """Writes what answers now, and keeps the file only if it answers like the learner; see `Learner.export`.

    Parameters
    ----------
    learner : Learner
        One that has learnt something.
    path : path
        NAME.pt2 or NAME.onnx.
    columns : int, optional
        Of a table: the input is (B, columns) float32 in place of pixels.
    """
    place = as_path(path)
    check_ending(place)
    learner.prepare()
    program = _traced(learner, columns)
    about = {"format": FORMAT, "version": __version__, "method": learner.method.name, "seen": learner.context.seen}
    form = {"image": learner.config.image} if columns is None else {"columns": columns}
    text = json.dumps(about | form | {"mean": learner.config.mean, "std": learner.config.std, "labels": learner.labels})
    with replacing(place) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own doings
        if place.suffix == ".onnx":
            _write_onnx(program, temporary, text)
        else:
            torch.export.save(program, temporary, extra_files={KEY: text})
        _check(learner, columns, temporary)


def check_ending(path: Path) -> None:
    """InputError unless the file's name says which format is meant and its libraries are installed."""
    if path.suffix not in ENDINGS:
        raise InputError(f"{path} ends in {path.suffix!r}; end its name in .pt2 (torch.export) or .onnx.")
    missing = [name for name in LIBRARIES if path.suffix == ".onnx" and find_spec(name) is None]
    if missing:
        raise InputError(f"{path} needs {' and '.join(missing)}; run: pip install 'iblurry[onnx]'; or export a .pt2.")


class AnsweringModule(nn.Module):
    """Pixels to logits of the classes met, as the readout answers.

    Parameters
    ----------
    learner : Learner
        Whose readout it is.
    columns : int, optional
        Of a table.
    """

    def __init__(self, learner: Learner, columns: int | None) -> None:
        super().__init__()
        self._readout, self._known, self._columns = learner.method.readout, len(learner.labels), columns
        self._encode = learner.context.encode

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) uint8, or (B, columns) float32, to (B, classes)."""
        if self._columns is not None:
            images = images.view(torch.uint8).reshape(-1, 1, self._columns, 4)  # the bytes of its numbers
        return self._readout.logits(self._encode(images))[:, : self._known]


@torch.no_grad()
def _traced(learner: Learner, columns: int | None) -> torch.export.ExportedProgram:
    device, batch = learner.engine.device, 2  # torch.export takes a batch of 1 for a constant
    if columns is None:
        example = torch.zeros(batch, *learner.config.image, dtype=torch.uint8, device=device)
    else:
        example = torch.zeros(batch, columns, device=device)
    module = AnsweringModule(learner, columns).eval()
    shapes = {"images": {0: torch.export.Dim("batch", min=1, max=MOST_IMAGES)}}
    token = EXPORTING.set(True)
    try:
        program = torch.export.export(module, (example,), dynamic_shapes=shapes, strict=False)
    except IblurryError:
        raise
    except Exception as error:  # of the user's body or readout, or torch's: there is no common class
        body = (learner.context.frozen or learner.context).network.body
        names = f"{type(body).__name__} with {type(learner.method.readout).__name__}"
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{names} cannot be exported ({why}); it must be tensor operations only, for any number of images."
        ) from error
    finally:
        EXPORTING.reset(token)
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, "cpu")
    return program


def _write_onnx(program: torch.export.ExportedProgram, path: Path, text: str) -> None:
    import onnx

    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["logits"]}
    try:
        made = torch.onnx.export(program, (), dynamo=True, verbose=False, **names)
    except Exception as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"This network cannot be written as ONNX ({why}); export a .pt2 instead.") from error
    assert made is not None
    model = made.model_proto
    model.metadata_props.append(onnx.StringStringEntryProto(key=KEY, value=text))
    onnx.save(model, os.fspath(path))


@torch.no_grad()
def _check(learner: Learner, columns: int | None, path: Path) -> None:
    """InputError unless the file answers as the learner does: for noise, and for what the memory has of images."""
    context, rng = learner.context, np.random.default_rng(1)
    held = context.memory.images[: min(context.memory.size, CHECKED)]
    if columns is None:
        noise = torch.from_numpy(rng.integers(0, 256, (CHECKED, *learner.config.image), dtype=np.uint8))
    else:
        noise = torch.from_numpy(rng.standard_normal((CHECKED, columns), dtype=np.float32))
        held = held.reshape(-1, 4 * columns).view(torch.float32) if context.frozen is None else held
    noise = learner.engine.to_device(noise)
    images = torch.cat([held, noise]) if context.frozen is None else noise
    with context.network.meter.counting("queries", into=ComputeCounter()):
        wanted = AnsweringModule(learner, columns).eval()(images).float().cpu()
    found = (_run_onnx if path.suffix == ".onnx" else _run_program)(path, images.cpu())
    most = ROUNDING[learner.engine.precision] * max(1.0, float(wanted.abs().max()))
    difference = float((found - wanted).abs().max()) if len(wanted) else 0.0
    if not difference <= most:
        raise InputError(
            f"The exported {path.suffix} and the learner give different outputs (up to {difference:.3g}), so no file "
            "was written; choose the other format, or report this."
        )


def _run_program(path: Path, images: Tensor) -> Tensor:
    answers: Tensor = torch.export.load(path).module()(images)
    return answers


def _run_onnx(path: Path, images: Tensor) -> Tensor:
    from onnx.reference import ReferenceEvaluator

    return torch.from_numpy(ReferenceEvaluator(os.fspath(path)).run(None, {"images": images.numpy()})[0])
