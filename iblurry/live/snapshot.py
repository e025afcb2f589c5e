"""Snapshots: what is needed to answer, as bytes from the process that learns to the one that answers."""

from __future__ import annotations

import json
import struct

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.learner import Learner
from iblurry.live.exchange import Answers
from iblurry.live.settings import Settings
from iblurry.parts.context import Context


def taken(learner: Learner, at: int) -> bytes:
    """What answers as the learner does at this moment."""
    about = json.dumps({"at": at, "labels": learner.labels}).encode()
    tensors = [values.detach().cpu().contiguous() for values in _state(learner.context)]
    return b"".join([struct.pack("<I", len(about)), about, *(bytes(_raw(values).numpy().data) for values in tensors)])


class Answering:
    """Takes what was published and answers as a plain readout does."""

    def __init__(self, settings: Settings) -> None:
        self._context = settings.context()
        self.at = 0
        self.labels: tuple[str, ...] = ()

    def put(self, snapshot: bytes) -> None:
        """From now on it answers as the learner did then."""
        (length,) = struct.unpack_from("<I", snapshot)
        about = json.loads(snapshot[4 : 4 + length])
        content = torch.frombuffer(bytearray(snapshot[4 + length :]), dtype=torch.uint8)
        there = _state(self._context)
        sizes = [values.numel() * values.element_size() for values in there]
        for values, raw in zip(there, content.split(sizes), strict=True):
            values.copy_(raw.clone().view(values.dtype).view(values.shape))
        self._context.network.labels[:] = about["labels"]
        self.at, self.labels = about["at"], tuple(about["labels"])

    def ask(self, pixels: NDArray[np.uint8]) -> Answers:
        """(B, C, H, W); once something was put."""
        images = self._context.engine.to_device(torch.from_numpy(pixels))
        logits = self._context.logits(images)[:, : len(self.labels)]
        return Answers(self.at, self.labels, logits.softmax(1).cpu().numpy())


def _state(context: Context) -> list[Tensor]:
    """In the same order on both sides."""
    return list(context.network.state_dict().values())


def _raw(values: Tensor) -> Tensor:
    return values.reshape(-1).view(torch.uint8)
