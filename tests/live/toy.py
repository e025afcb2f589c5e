"""A service that learns nothing: it remembers samples and answers by the nearest mean colour."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.live.exporter import ModelFile
from iblurry.live.http.answers import StatusResponse
from iblurry.live.messages import Acceptance, IncomingSample, LearnerReport, MemorySample, Operation, Predictions
from iblurry.live.questions import QuestionStore
from iblurry.live.quota import Limits, Refusal

STATUS = dict.fromkeys(StatusResponse.model_fields, 0) | {  # of a service that has nothing to do
    "iblurry": "0.1.0",
    "method": "clib",
    "network": "convnet",
    "freeze": "none",
    "pretrained": False,
    "image": [3, 32, 32],
    "device": "cpu",
    "threads": 1,
    "capacity": 500,
    "max_classes": 100,
    "queue_limit": 1000,
    "state": "idle",
    "sentence": "Idle.",
    "window": 1000,
    "learning_rate": 3e-4,
    "loss": 0.2,
    "drift": 0.1,
    "accuracy": None,
    "recent_accuracy": 0.9,
    "held_out_accuracy": None,
    "checkpoint_age_seconds": None,
    "disk_bytes": 12345,
    "disk_most": 99999999,
    "samples_per_second": 120.0,
    "model_age_seconds": 0.4,
    "uptime_seconds": 12.3,
}


class Toy:
    """Everything HTTP may ask of a service; `failure` is raised by the next call that could fail."""

    def __init__(self, image: tuple[int, int, int] = (3, 4, 4), limits: Limits | None = None) -> None:
        self.settings, self.limits = SimpleNamespace(image=image, memory=500), limits or Limits()
        self.samples: list[IncomingSample] = []
        self.keys: dict[str, tuple[list[bytes], Acceptance]] = {}
        self.queues: set[asyncio.Queue[tuple[str, dict[str, Any]]]] = set()
        self.failure: Exception | None = None
        self.reason: str | None = None
        self.closed = self.started = False
        self.loss = 0.2
        self.idle_updates = 0
        self.trains = True
        self.questions = QuestionStore(image, self.limits)
        self.corrections: list[Operation] = []
        self.held_out: list[IncomingSample] = []

    async def start(self) -> None:
        self.started = True

    async def learn(self, samples: Sequence[IncomingSample], *, key: str | None = None) -> Acceptance:
        self._fail()
        content = [sample.label.encode() + sample.pixels.tobytes() for sample in samples]
        if key in self.keys:
            if self.keys[key][0] != content:
                raise Refusal(422, "key_reused", "This key was used for other samples; take a new one.")
            return self.keys[key][1]._replace(repeated=True)
        if len({*self.labels, *(sample.label for sample in samples)}) > 100:
            raise Refusal(409, "too_many_classes", "There is no room for another class; use one of those known.")
        first = len(self.samples) + 1
        self.samples += samples
        receipt = Acceptance(first, len(self.samples), False)
        if key is not None:
            self.keys[key] = content, receipt
        self.tell("status", self.status())
        return receipt

    async def predict(self, pixels: NDArray[np.uint8]) -> Predictions:
        self._fail()
        if not self.samples:
            raise Refusal(409, "nothing_learnt", "Nothing has been learnt yet; send samples first.")
        means = np.array([np.mean([s.pixels for s in self.samples if s.label == label]) for label in self.labels])
        far = np.abs(pixels.mean(axis=(1, 2, 3))[:, None] - means)
        shares = np.exp(-far / 50)
        shares = (shares / shares.sum(1, keepdims=True)).astype(np.float32)
        return Predictions(len(self.samples), self.labels, shares, tuple(self.questions.add(pixels)))

    async def label(self, labels: Sequence[tuple[str, str]], *, key: str | None = None) -> Acceptance:
        return await self.learn([IncomingSample(label, self.questions.take(one)) for one, label in labels], key=key)

    async def hold_out(self, samples: Sequence[IncomingSample], *, key: str | None = None) -> Acceptance:
        self._fail()
        self.held_out += samples
        return Acceptance(0, 0, operation=len(self.samples) + len(self.held_out))

    async def correct(self, corrections: Sequence[Operation], *, key: str | None = None) -> Acceptance:
        self._fail()
        for one in corrections:
            if one.number > len(self.samples):
                raise Refusal(404, "unknown_sample", f"There is no sample {one.number}; correct the number.")
            if not one.number and one.label not in self.labels:
                raise Refusal(404, "unknown_class", f"There is no class {one.label!r}; give another.")
        self.corrections += corrections
        return Acceptance(0, 0, operation=len(self.samples) + len(self.corrections))

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(sample.label for sample in self.samples))

    def status(self) -> dict[str, Any]:
        self._fail()
        count = len(self.samples)
        counts = dict.fromkeys(("accepted", "learnt", "model", "updates", "held"), count)
        return STATUS | counts | {"image": [*self.settings.image], "classes": len(self.labels), "loss": self.loss}

    @property
    def report(self) -> LearnerReport:
        seen = {label: sum(s.label == label for s in self.samples) for label in self.labels}
        classes: list[dict[str, Any]] = [
            {"label": label, "first": 1, "seen": count, "held": count, "tested": count - 1, "right": 0}
            | {"accuracy": 0.0 if count > 1 else None, "recent_accuracy": None}
            | {"recent_share": count / len(self.samples), "before_share": 0.0}
            for label, count in seen.items()
        ]
        point = {"at": 100, "accuracy": 0.5, "recent_accuracy": None, "learning_rate": 0.0003, "classes": 2}
        point |= {"time": 1.7e9, "tested": 90, "right": 45, "held_out_accuracy": None}
        confusion = [{"label": label, "answer": None, "count": 1} for label in self.labels]
        return LearnerReport(classes=classes, history=[point], confusion=confusion, window=1000)

    async def memory(self) -> list[MemorySample]:
        return [
            MemorySample(row, label, row / 10 if row % 2 else None, row + 1, pixels)
            for row, (label, pixels) in enumerate(self.samples)
        ]

    async def model(self, kind: str, *, known: int | None = None) -> ModelFile | None:
        self._fail()
        if not self.samples:
            raise Refusal(409, "nothing_learnt", "Nothing has been learnt yet; send samples first.")
        if known is not None and known >= len(self.samples):
            return None
        return ModelFile(
            len(self.samples), len(self.samples), len(self.samples) + 1, io.BytesIO(kind.encode() * 200_000)
        )

    def not_ready(self) -> str | None:
        return self.reason

    @property
    def listeners(self) -> int:
        return len(self.queues)

    def end_events(self) -> None:
        self.tell("end", {})

    @contextmanager
    def subscribe(self) -> Iterator[asyncio.Queue[tuple[str, dict[str, Any]]]]:
        if self.listeners >= self.limits.listeners:
            raise Refusal(429, "too_many_listeners", "Too many listen; come back.", retry_after=10)
        queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(16)
        queue.put_nowait(("status", self.status()))
        self.queues.add(queue)
        try:
            yield queue
        finally:
            self.queues.discard(queue)

    def tell(self, name: str, data: dict[str, Any]) -> None:
        for queue in self.queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait((name, data))

    async def close(self) -> None:
        self.closed = True
        self.end_events()

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
