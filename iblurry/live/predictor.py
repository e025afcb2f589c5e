"""Predictions: a snapshot of the model, and the thread that answers from the newest one."""

from __future__ import annotations

import math
import threading
import time
from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray

from iblurry.live.messages import Predictions, Snapshot
from iblurry.live.quality import to_probabilities
from iblurry.live.settings import Settings
from iblurry.live.worker import BatchWorker

BATCH = 64  # images predicted at once, where several requests wait
QUICK = 0.01  # seconds: what takes less is no reason to wake another thread, and whoever else asks may wait for it


class Predictor(BatchWorker[NDArray[np.uint8], Predictions]):
    """Answers from the newest snapshot, whatever the learner does; requests are images (B, C, H, W)."""

    def __init__(self, settings: Settings, unknown_rate: float) -> None:
        super().__init__("predictor", most=BATCH)
        torch.set_num_threads(1)  # of this thread, and in `_run` of the other: more cores are for learning
        self._model = SnapshotModel(settings, unknown_rate)
        self._newest: deque[Snapshot] = deque(maxlen=1)
        self._lock = threading.Lock()  # of the model
        self._seconds = math.inf  # that an image took last

    def update(self, snapshot: Snapshot) -> None:
        """Answer with this one from now on; may be called from any thread."""
        self._newest.append(snapshot)

    def size(self, request: NDArray[np.uint8]) -> int:
        return len(request)

    def try_now(self, request: NDArray[np.uint8]) -> Predictions | None:
        """The answer from the caller's own thread; None where that would take long, or the model is in use."""
        if self._seconds * len(request) > QUICK or self._lock.locked():
            return None
        return self.handle([request])[0]

    def handle(self, requests: list[NDArray[np.uint8]]) -> list[Predictions]:
        with self._lock:
            began = time.monotonic()
            if self._newest:
                self._model.load(self._newest.pop())
            predictions = self._model.predict(np.concatenate(requests))
            self._seconds = (time.monotonic() - began) / len(predictions.probabilities)
        if len(requests) == 1:
            return [predictions]
        ends = np.cumsum([len(pixels) for pixels in requests])
        parts = np.split(predictions.probabilities, ends[:-1])
        return [predictions._replace(probabilities=part) for part in parts]

    def _run(self) -> None:
        torch.set_num_threads(1)
        super()._run()


class SnapshotModel:
    """A readout that takes over snapshots and answers as the learner's does."""

    def __init__(self, settings: Settings, unknown_rate: float = 0.0) -> None:
        self._unknown_rate = unknown_rate
        self._context = settings.build_context()
        self._readout = settings.build_method().readout.attach(self._context)
        self.at = 0
        self.labels: tuple[str, ...] = ()

    def load(self, snapshot: Snapshot) -> None:
        if snapshot.tensors:
            for values, saved in zip(self._readout.answers_with(), snapshot.tensors, strict=True):
                values.copy_(torch.from_numpy(saved))
            self._context.network.hold()
        self._context.network.labels[:] = snapshot.labels
        self.at, self.labels, self._calibration = snapshot.at, snapshot.labels, snapshot.calibration
        self._threshold = self._calibration.threshold(self._unknown_rate)

    def predict(self, pixels: NDArray[np.uint8]) -> Predictions:
        """(B, C, H, W), once a snapshot is loaded."""
        images = self._context.engine.to_device(torch.from_numpy(pixels))
        logits = self._readout.logits(self._context.encode(images))[:, : len(self.labels)]
        probabilities = to_probabilities(logits, self._calibration.temperature)
        return Predictions(self.at, self.labels, probabilities, threshold=self._threshold)
