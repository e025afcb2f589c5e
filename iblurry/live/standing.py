"""Standing: what the server knows of the learner, from what it was told last."""

from __future__ import annotations

import time
from typing import Any

from iblurry.live.limits import Limits
from iblurry.live.log import Log
from iblurry.live.settings import Settings
from iblurry.version import __version__

ASIDE = ("classes", "history", "checkpoint_most")  # of what the learner tells: no part of the status


class Standing:
    """Written by the loop's thread; others only read single numbers of it."""

    def __init__(self, settings: Settings, limits: Limits) -> None:
        self.settings, self.limits = settings, limits
        self.stopping = False
        self.stalled: str | None = None
        self.model = 0  # samples learnt by the snapshot that answers
        self._began = self._model_came = time.monotonic()
        self._saved: float | None = None  # when
        self._lost: str | None = "The process that learns is being started."
        self._said: str | None = None
        self._report: dict[str, Any] = {"learnt": 0, "classes": [], "history": [], "samples_per_second": 0.0}

    def begin(self, log: Log) -> None:
        """What the log holds already is to be learnt again, or for the first time, before new samples."""
        self.log = log
        self._replayed = log.accepted

    def hear(self, message: tuple[Any, ...]) -> None:
        """From the process that learns."""
        match message:
            case ("snapshot", at, _):
                self.model, self._model_came = at, time.monotonic()
            case ("report", report, _):
                self._report, self._lost = report, None
            case ("saved", at, _):
                self._saved, self._said = time.monotonic(), None
                self._report = self._report | {"checkpoint": at}
            case ("said", sentence):
                self._said = sentence
            case ("lost", sentence):
                self._lost = sentence
            case ("stalled", sentence):
                self.stalled = sentence

    @property
    def learnt(self) -> int:
        learnt: int = self._report["learnt"]
        return learnt

    @property
    def samples_per_second(self) -> float:
        """Lately; 0 at rest."""
        rate: float = self._report["samples_per_second"]
        return rate if self.learnt < self.log.accepted else 0.0

    @property
    def checkpoint_most(self) -> int:
        """Bytes; 0 until the learner has told."""
        most: int = self._report.get("checkpoint_most", 0)
        return most

    @property
    def classes(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._report["classes"]
        return rows

    @property
    def history(self) -> list[dict[str, Any]]:
        points: list[dict[str, Any]] = self._report["history"]
        return points

    @property
    def state(self) -> str:
        if self.stalled is not None:
            return "stalled"
        if self.stopping:
            return "stopping"
        if self._lost is not None or self.learnt < self._replayed:
            return "recovering"
        return "learning" if self.learnt < self.log.accepted else "idle"

    @property
    def sentence(self) -> str:
        """Of the state, for people."""
        if self.stalled is not None:
            return f"{self.stalled} Answers come from what was learnt before; samples are kept, not learnt."
        if self._said is not None:
            return self._said
        left = self.log.accepted - self.learnt
        return {
            "stopping": "The service is being stopped; what waits is learnt after the next start.",
            "recovering": self._lost or f"{left} samples from before the last start are being learnt.",
            "learning": "1 sample waits to be learnt." if left == 1 else f"{left} samples wait to be learnt.",
            "idle": "Everything that was sent is learnt.",
        }[self.state]

    @property
    def unready(self) -> str | None:
        """Why it should be sent no requests, or None."""
        if self.stalled is not None or self.stopping:
            return self.sentence
        return None

    def status(self) -> dict[str, Any]:
        """Numbers and a sentence."""
        now, settings = time.monotonic(), self.settings
        told = {name: value for name, value in self._report.items() if name not in ASIDE}
        nothing = {"learning_rate": None, "loss": None, "updates": 0, "held": 0, "accuracy": None, "window": 0}
        nothing |= {"recent_accuracy": None, "tested": 0, "drift": None, "checkpoint": 0}
        return {
            "iblurry": __version__,
            "method": settings.method,
            "network": settings.network,
            "image": list(settings.image),
            "capacity": settings.memory,
            "max_classes": settings.max_classes,
            "device": settings.device,
            "threads": settings.threads,
            "state": self.state,
            "sentence": self.sentence,
            "accepted": self.log.accepted,
            "queue": self.log.accepted - self.learnt,
            "queue_limit": self.limits.queue,
            "classes": len(self.log.labels),
            "model": self.model,
            "model_age_seconds": now - self._model_came,
            "checkpoint_age_seconds": None if self._saved is None else now - self._saved,
            "uptime_seconds": now - self._began,
            **nothing,
            **told,
            "samples_per_second": self.samples_per_second,
        }
