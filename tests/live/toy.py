"""A service that learns nothing: it remembers samples, answers by the nearest mean colour, and does as a test says."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import Iterator, Sequence, Sized
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
POINT = {"at": 100, "accuracy": 0.5, "recent_accuracy": None, "learning_rate": 0.0003, "classes": 2}
POINT |= {"time": 1.7e9, "tested": 90, "right": 45, "held_out_accuracy": None}


class Toy:
    """Everything HTTP may ask of a service; `failure` is raised by the next call that could fail.

    Other attributes that tests set: `changes` of the status, `shares` (probabilities of the classes as they were met,
    instead of those by colour), the `threshold` below which answers are unknown, `points` of the history, `confused`
    (label, answer, count), `learnt` (None: all that is accepted), and whether the memory `has_pictures`.
    """

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
        self.loop: asyncio.AbstractEventLoop | None = None
        self.events_kept = 16  # for a listener that is slow; 0: all
        self.changes: dict[str, Any] = {}
        self.shares: tuple[float, ...] | None = None
        self.threshold: float | None = None
        self.points = [POINT]
        self.confused: list[tuple[str, str | None, int]] | None = None  # None: each class once, for one that is gone
        self.learnt: int | None = None
        self.has_pictures = True
        self.labelled: list[tuple[str, str]] = []  # id and label, as they came
        self.predicted = 0  # images
        self.requests: list[tuple[str | None, int]] = []  # to learn: key and samples
        self.batch, self.queue_limit = 256, 1000  # samples of a request, at most

    def reset(self) -> None:
        """As it was made."""
        vars(self).update(vars(Toy(self.settings.image, self.limits)) | {"loop": self.loop, "queues": self.queues})

    async def start(self) -> None:
        self.started, self.loop = True, asyncio.get_running_loop()

    def teach(self, label: str, count: int = 1) -> None:
        """Accepts samples of a class, each of its colour; listeners are told."""
        is_new, shape = label not in self.labels, self.settings.image
        self.samples += [IncomingSample(label, np.full(shape, 40 * len(self.labels), np.uint8))] * count
        if is_new:
            self.tell("class", {"label": label})
        self.tell("status", self.status())

    def point(self, at: int, accuracy: float, recent: float, rate: float = 3e-4, **more: Any) -> None:
        """Adds a point to the history; listeners are told."""
        counted = {"classes": len(self.labels), "time": 1.79e9 + at, "tested": at, "right": round(at * accuracy)}
        measured = {"accuracy": accuracy, "recent_accuracy": recent, "learning_rate": rate}
        self.points.append({"at": at, "held_out_accuracy": None} | measured | counted | more)
        self.tell("point", self.points[-1])

    async def learn(self, samples: Sequence[IncomingSample], *, key: str | None = None) -> Acceptance:
        self._fail()
        self.requests.append((key, len(samples)))
        self._check_count(samples, self.batch)
        content = [sample.label.encode() + sample.pixels.tobytes() for sample in samples]
        if key in self.keys:
            if self.keys[key][0] != content:
                raise Refusal(422, "key_reused", "This key was used for other samples; take a new one.")
            return self.keys[key][1]._replace(repeated=True)
        self._check_count(samples, self.queue_limit)  # what came before needs no room
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
        self._check_count(pixels, self.batch)
        means = np.array([np.mean([s.pixels for s in self.samples if s.label == label]) for label in self.labels])
        far = np.abs(pixels.mean(axis=(1, 2, 3))[:, None] - means)
        shares = np.exp(-far / 50)
        shares = (shares / shares.sum(1, keepdims=True)).astype(np.float32)
        if self.shares is not None:
            shares = np.tile(np.resize(self.shares, len(self.labels)), (len(pixels), 1))
        self.predicted += len(pixels)
        ids = tuple(self.questions.add(pixels))
        return Predictions(len(self.samples), self.labels, shares, ids, self.threshold)

    async def label(self, labels: Sequence[tuple[str, str]], *, key: str | None = None) -> Acceptance:
        samples = [IncomingSample(label, self.questions.take(one)) for one, label in labels]
        self.labelled += labels
        return await self.learn(samples, key=key)

    async def hold_out(self, samples: Sequence[IncomingSample], *, key: str | None = None) -> Acceptance:
        self._fail()
        self.held_out += samples
        return Acceptance(0, 0, operation=self.operations)

    async def correct(self, corrections: Sequence[Operation], *, key: str | None = None) -> Acceptance:
        self._fail()
        for one in corrections:
            if one.number > len(self.samples):
                raise Refusal(404, "unknown_sample", f"There is no sample {one.number}; correct the number.")
            if not one.number and one.label not in self.labels:
                raise Refusal(404, "unknown_class", f"There is no class {one.label!r}; give another.")
        self.corrections += corrections
        return Acceptance(0, 0, operation=self.operations)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.seen)

    @property
    def seen(self) -> Counter[str]:
        return Counter(sample.label for sample in self.samples)

    @property
    def operations(self) -> int:
        return len(self.samples) + len(self.held_out) + len(self.corrections)

    def status(self) -> dict[str, Any]:
        self._fail()
        learnt = len(self.samples) if self.learnt is None else min(self.learnt, len(self.samples))
        counts = dict.fromkeys(("learnt", "model", "updates", "held"), learnt)
        operations = dict.fromkeys(("applied", "model_operation"), learnt + self.operations - len(self.samples))
        about = {
            "accepted": len(self.samples),
            "queue_limit": self.queue_limit,
            "held_out": len(self.held_out),
            "queue": len(self.samples) - learnt,
            "operations": self.operations,
            "image": [*self.settings.image],
            "classes": len(self.labels),
            "loss": self.loss,
        }
        return STATUS | counts | operations | about | self.changes

    @property
    def report(self) -> LearnerReport:
        met = [sample.label for sample in self.samples]
        classes: list[dict[str, Any]] = [
            {"label": label, "first": met.index(label) + 1, "seen": count, "held": count, "tested": count - 1}
            | {"right": 0, "accuracy": 0.0 if count > 1 else None, "recent_accuracy": None}
            | {"recent_share": count / len(met), "before_share": 0.0}
            for label, count in self.seen.items()
        ]
        confused = [(label, None, 1) for label in self.labels] if self.confused is None else self.confused
        confusion = [{"label": label, "answer": answer, "count": count} for label, answer, count in confused]
        return LearnerReport(classes=classes, history=self.points, confusion=confusion, window=1000)

    async def memory(self) -> list[MemorySample]:
        return [
            MemorySample(row, label, row / 10 if row % 2 else None, row + 1, pixels if self.has_pictures else None)
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
        queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(self.events_kept)
        queue.put_nowait(("status", self.status()))
        self.queues.add(queue)
        try:
            yield queue
        finally:
            self.queues.discard(queue)

    def tell(self, name: str, data: dict[str, Any]) -> None:
        """Tells all listeners; from any thread."""

        def put() -> None:
            for queue in self.queues:
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait((name, data))

        put() if self.loop is None else self.loop.call_soon_threadsafe(put)

    async def close(self) -> None:
        self.end_events()
        self.closed, self.loop = True, None

    def _check_count(self, given: Sized, most: int) -> None:
        if len(given) > most:
            raise Refusal(413, "too_many", f"{len(given)} are more than {most}; send fewer.")

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
