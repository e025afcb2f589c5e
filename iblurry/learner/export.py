"""Export: the network that answers as a file that needs no iblurry, with normalisation and class names inside."""

from __future__ import annotations

import json
import os
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iblurry.compute import ComputeCounter
from iblurry.errors import IblurryError, InputError
from iblurry.learner.config import LearnerConfig
from iblurry.learner.exported import KEY
from iblurry.network import EXPORTING
from iblurry.network.registry import Image
from iblurry.parts import Readout
from iblurry.storage.files import as_path, replacing
from iblurry.version import __version__

FORMAT = 1
ENDINGS = (".pt2", ".onnx")
MOST_IMAGES = 65_535  # of one call; cuDNN's batch norm, where a learner is traced on a GPU, takes no more
CHECKED = 8  # images of each kind for which a new file must answer like the learner
ROUNDING = {"float32": 1e-3, "bfloat16": 0.1}  # of the largest logit, by which answers may differ
LIBRARIES = ("onnx", "onnxscript")  # the extra `onnx`


def export(
    config: LearnerConfig, readout: Readout, path: str | os.PathLike[str], *, columns: int | None = None
) -> None:
    """Writes what answers now, and keeps the file only if it answers like the learner; see `Learner.export`.

    Parameters
    ----------
    config : LearnerConfig
        Of the learner.
    readout : Readout
        Of the learner, prepared to answer.
    path : path
        NAME.pt2 or NAME.onnx.
    columns : int, optional
        Of a table: the input is (B, columns) float32 in place of pixels.
    """
    place, context = as_path(path), readout.context
    check_ending(place)
    answering = _AnsweringModule(readout, columns).eval()
    program = _traced(answering, config.image)
    about = {"format": FORMAT, "version": __version__, "method": config.method.name, "seen": context.seen}
    form = {"image": config.image} if columns is None else {"columns": columns}
    text = json.dumps(about | form | {"mean": config.mean, "std": config.std, "labels": context.network.labels})
    with replacing(place) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own doings
        if place.suffix == ".onnx":
            _write_onnx(program, temporary, text)
        else:
            torch.export.save(program, temporary, extra_files={KEY: text})
        _check(answering, config.image, temporary)


def check_ending(path: Path) -> None:
    """InputError unless the file's name says which format is meant and its libraries are installed."""
    if path.suffix not in ENDINGS:
        raise InputError(f"{path} ends in {path.suffix!r}; end its name in .pt2 (torch.export) or .onnx.")
    missing = [name for name in LIBRARIES if path.suffix == ".onnx" and find_spec(name) is None]
    if missing:
        raise InputError(f"{path} needs {' and '.join(missing)}; run: pip install 'iblurry[onnx]'; or export a .pt2.")


class _AnsweringModule(nn.Module):
    """Pixels, or the `columns` of a table, to logits of the classes met, as a readout answers."""

    def __init__(self, readout: Readout, columns: int | None) -> None:
        super().__init__()
        self.readout, self.columns = readout, columns
        self._encode, self._known = readout.context.encode, readout.context.network.known

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) uint8, or (B, columns) float32, to (B, classes)."""
        if self.columns is not None:
            images = images.view(torch.uint8).reshape(-1, 1, self.columns, 4)  # the bytes of its numbers
        return self.readout.logits(self._encode(images))[:, : self._known]


@torch.no_grad()
def _traced(module: _AnsweringModule, image: Image) -> torch.export.ExportedProgram:
    context, batch = module.readout.context, 2  # torch.export takes a batch of 1 for a constant
    device = context.device
    if module.columns is None:
        example = torch.zeros(batch, *image, dtype=torch.uint8, device=device)
    else:
        example = torch.zeros(batch, module.columns, device=device)
    shapes = {"images": {0: torch.export.Dim("batch", min=1, max=MOST_IMAGES)}}
    token = EXPORTING.set(True)
    try:
        program = torch.export.export(module, (example,), dynamic_shapes=shapes, strict=False)
    except IblurryError:
        raise
    except Exception as error:  # of the user's body or readout, or torch's: there is no common class
        body = (context.frozen or context).network.body
        names = f"{type(body).__name__} with {type(module.readout).__name__}"
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
def _check(module: _AnsweringModule, image: Image, path: Path) -> None:
    """InputError unless the file answers as the learner does: for noise, and for what the memory has of images."""
    context, columns, rng = module.readout.context, module.columns, np.random.default_rng(1)
    held = context.memory.images[: min(context.memory.size, CHECKED)]
    if columns is None:
        noise = torch.from_numpy(rng.integers(0, 256, (CHECKED, *image), dtype=np.uint8))
    else:
        noise = torch.from_numpy(rng.standard_normal((CHECKED, columns), dtype=np.float32))
        held = held.reshape(-1, 4 * columns).view(torch.float32) if context.frozen is None else held
    noise = context.engine.to_device(noise)
    images = torch.cat([held, noise]) if context.frozen is None else noise
    with context.network.meter.counting("queries", into=ComputeCounter()):
        wanted = module(images).float().cpu()
    found = (_run_onnx if path.suffix == ".onnx" else _run_program)(path, images.cpu())
    most = ROUNDING[context.engine.precision] * max(1.0, float(wanted.abs().max()))
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
