"""Predictions: a snapshot of the model as bytes, and the thread that answers from the newest one."""

from __future__ import annotations

import json
import queue
import struct
import threading
from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.learner import Learner
from iblurry.live.messages import Predictions
from iblurry.live.settings import Settings
from iblurry.parts.context import Context

BATCH = 64  # images predicted at once, where several requests wait


class PredictRequest(NamedTuple):
    """Images, and the future that waits for their predictions."""

    pixels: NDArray[np.uint8]  # (B, C, H, W)
    predictions: Future[Predictions]


class Predictor:
    """A thread that answers from the newest snapshot, whatever the learner does; it is loaded between two answers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ready: Future[None] = Future()
        self._newest: deque[bytes] = deque(maxlen=1)
        self._waiting: queue.SimpleQueue[PredictRequest | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="predictor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def update(self, snapshot: bytes) -> None:
        """Answer with this one from now on; may be called from any thread."""
        self._newest.append(snapshot)

    def predict(self, pixels: NDArray[np.uint8]) -> Future[Predictions]:
        request = PredictRequest(pixels, Future())
        self._waiting.put(request)
        return request.predictions

    def close(self) -> None:
        """Answer what waits, and end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)  # of this thread: the other cores are for learning
        try:
            model = SnapshotModel(self.settings)
        except Exception as error:
            self.ready.set_exception(error)
            return
        self.ready.set_result(None)
        last = False
        while not last:
            batch = [self._waiting.get()]
            while batch[-1] is not None and _images(batch) < BATCH and not self._waiting.empty():
                batch.append(self._waiting.get())
            last = batch[-1] is None
            requests = [request for request in batch if request is not None]
            self._answer(model, [each for each in requests if each.predictions.set_running_or_notify_cancel()])

    def _answer(self, model: SnapshotModel, requests: list[PredictRequest]) -> None:
        if not requests:
            return
        try:
            if self._newest:
                model.load(self._newest.pop())
            predictions = model.predict(np.concatenate([request.pixels for request in requests]))
        except Exception as error:
            for request in requests:
                request.predictions.set_exception(error)
            return
        begin = 0
        for request in requests:
            end = begin + len(request.pixels)
            part = predictions._replace(probabilities=predictions.probabilities[begin:end])
            request.predictions.set_result(part)
            begin = end


class SnapshotModel:
    """A network that takes over snapshots and answers as a plain readout does."""

    def __init__(self, settings: Settings) -> None:
        self._context = settings.build_context()
        self.at = 0
        self.labels: tuple[str, ...] = ()

    def load(self, snapshot: bytes) -> None:
        (length,) = struct.unpack_from("<I", snapshot)
        about = json.loads(snapshot[4 : 4 + length])
        content = torch.frombuffer(bytearray(snapshot[4 + length :]), dtype=torch.uint8)
        state = _state(self._context)
        sizes = [values.numel() * values.element_size() for values in state]
        for values, raw in zip(state, content.split(sizes), strict=True):
            values.copy_(raw.clone().view(values.dtype).view(values.shape))
        self._context.network.labels[:] = about["labels"]
        self.at, self.labels = about["at"], tuple(about["labels"])

    def predict(self, pixels: NDArray[np.uint8]) -> Predictions:
        """(B, C, H, W), once a snapshot is loaded."""
        images = self._context.engine.to_device(torch.from_numpy(pixels))
        logits = self._context.logits(images)[:, : len(self.labels)]
        return Predictions(self.at, self.labels, logits.softmax(1).cpu().numpy())


def take_snapshot(learner: Learner, at: int) -> bytes:
    """The learner's network after `at` samples: a JSON header behind its length, then the raw tensors."""
    about = json.dumps({"at": at, "labels": learner.labels}).encode()
    tensors = [values.detach().cpu().contiguous() for values in _state(learner.context)]
    raw = (bytes(values.reshape(-1).view(torch.uint8).numpy().data) for values in tensors)
    return b"".join([struct.pack("<I", len(about)), about, *raw])


def _state(context: Context) -> list[Tensor]:
    """In the same order on both sides."""
    return list(context.network.state_dict().values())


def _images(batch: list[PredictRequest | None]) -> int:
    return sum(len(request.pixels) for request in batch if request is not None)
