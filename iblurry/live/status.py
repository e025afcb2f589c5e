"""The status of a service: its state in words, what it has room for, and the numbers of /v1/status."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

from iblurry.errors import counted
from iblurry.live.log import SampleLog
from iblurry.live.messages import CheckpointSaved, LearnerReport, Message, ProcessLost, Snapshot, Stalled, Warned
from iblurry.live.quota import WAL, Limits, Refusal, max_log_bytes, max_log_operations
from iblurry.live.settings import Settings
from iblurry.version import __version__

CHECKPOINTS = 3  # the newest, the one before it, and one that is being written
MIN_RETRY, MAX_RETRY = 2.0, 60.0  # seconds: Retry-After while the learning rate is unknown, and the longest
NOT_IN_STATUS = (  # fields of a report
    *("classes", "history", "confusion", "new_points", "checkpoint_most"),
    *("checkpoint_written", "checkpoint_operation"),
)


class ServiceStatus:
    """The status of a service, from its log and the latest messages of its learner process.

    Written by the event loop's thread; others only read single numbers of it.
    """

    def __init__(self, settings: Settings, limits: Limits, *, idle_updates: int = 0) -> None:
        self.settings, self.limits, self.idle_updates = settings, limits, idle_updates
        self.most_operations = max_log_operations(limits)
        self.log_bytes = max_log_bytes(
            math.prod(settings.image), kept=self.most_operations, classes=settings.max_classes
        )
        self.report = LearnerReport()
        self.stopping = False
        self.stalled: str | None = None  # why nothing is learnt any more
        self.model = 0  # samples learnt by the snapshot that answers
        self.model_operation = 0  # the last one that is in it
        self._started_at = self._model_at = time.monotonic()
        self._is_started = False  # the learner process has reported
        self._lost: str | None = None  # how that process was lost
        self._warning: str | None = None

    def start(self, log: SampleLog) -> None:
        """What is in the log is applied, or applied again, before anything new."""
        self.log = log
        self._replayed = log.operations

    def update(self, message: Message) -> None:
        match message:
            case Snapshot(at=at, operation=operation):
                self.model, self.model_operation, self._model_at = at, operation, time.monotonic()
            case LearnerReport():
                self.report, self._lost, self._is_started = message, None, True
            case CheckpointSaved(at=at, operation=operation):
                self._warning = None
                self.report = dataclasses.replace(
                    self.report, checkpoint=at, checkpoint_operation=operation, checkpoint_written=time.time()
                )
            case Warned(sentence):
                self._warning = sentence
            case ProcessLost(sentence):
                self._lost = sentence
            case Stalled(sentence):
                self.stalled = sentence

    def check_room(self, count: int) -> None:
        """Raise a Refusal where `count` more samples are too many."""
        queue = self.limits.queue
        if count > queue:
            raise Refusal(413, "too_many", f"{count} samples are more than the queue can hold ({queue}); send fewer.")
        waiting = self.log.accepted - self.learnt
        if waiting + count > queue:
            wait, these = "waits" if waiting == 1 else "wait", "this one" if count == 1 else f"these {count}"
            message = f"{counted(waiting, 'sample')} {wait} to be learnt, of at most {queue}; send {these} again later."
            rate = self.samples_per_second  # 0 right after a start
            seconds = min(MAX_RETRY, (waiting + count - queue) / rate) if rate else MIN_RETRY
            retry_after = seconds if self.stalled is None else MAX_RETRY
            raise Refusal(429, "queue_full", message, retry_after=retry_after)
        if self.log.kept + count > self.most_operations:
            verb = "is" if self.log.kept == 1 else "are"
            why = f"because none could be written: {self.sentence}"
            message = f"{counted(self.log.kept, 'sample')} {verb} in no checkpoint yet, {why}"
            raise Refusal(507, "not_saved", message, retry_after=30)

    def disk_usage(self, folder: Path) -> dict[str, int | None]:
        """Return bytes used now, None where the folder is gone or cannot be read, and the upper bound."""
        try:
            used = sum(_size(path) for path in folder.iterdir())
        except OSError:
            used = None
        most = self.log_bytes + 2 * WAL + CHECKPOINTS * self.report.checkpoint_most + 2**20
        return {"disk_bytes": used, "disk_most": most}

    @property
    def learnt(self) -> int:
        return self.report.learnt

    @property
    def samples_per_second(self) -> float:
        """Recent speed of learning; 0 while there is nothing to learn."""
        return self.report.samples_per_second if self.learnt < self.log.accepted else 0.0

    @property
    def state(self) -> str:
        if self.stalled is not None:
            return "stalled"
        if self.stopping:
            return "stopping"
        if not self._is_started and self._lost is None:
            return "starting"
        if self._lost is not None or self.report.applied < self._replayed:
            return "recovering"
        return "learning" if self.learnt < self.log.accepted else "idle"

    @property
    def sentence(self) -> str:
        """The state in words."""
        if self.log.lost:
            return f"{self.log.lost} Answers come from what was learnt before; nothing is accepted."
        if self.stalled is not None:
            return f"{self.stalled} Answers come from what was learnt before; samples are kept, not learnt."
        if self._warning is not None:
            return self._warning
        left = self.log.accepted - self.learnt
        rehearsed = self.log.rehearsed
        before = f"{counted(left, 'sample')} from before the last start {'is' if left == 1 else 'are'} being learnt."
        idle = "Everything that was sent is learnt"
        if rehearsed:
            idle += f", and {rehearsed:,} of {self.idle_updates:,} updates on the memory were made since"
        return {
            "stopping": "The service is being stopped; waiting samples are learnt after the next start.",
            "starting": "The process that learns is being started.",
            "recovering": self._lost or (before if left else "Updates from before the last start are repeated."),
            "learning": f"{counted(left, 'sample')} {'waits' if left == 1 else 'wait'} to be learnt.",
            "idle": f"{idle}.",
        }[self.state]

    @property
    def not_ready(self) -> str | None:
        """Why no requests should be sent, or None."""
        return self.sentence if self.stalled is not None or self.stopping or self.log.lost else None

    def to_json(self) -> dict[str, Any]:
        """Most of /v1/status; the service adds disk usage and restarts."""
        now, settings, saved = time.monotonic(), self.settings, self.report.checkpoint_written
        fields = (field.name for field in dataclasses.fields(self.report))
        return {
            "iblurry": __version__,
            "method": settings.method,
            "network": settings.network,
            "freeze": settings.freeze,
            "pretrained": settings.pretrained,
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
            "operations": self.log.operations,
            "model": self.model,
            "model_operation": self.model_operation,
            "rehearsed": self.log.rehearsed,
            "idle_updates": self.idle_updates,
            "model_age_seconds": now - self._model_at,
            "checkpoint_age_seconds": None if saved is None else max(0.0, time.time() - saved),
            "uptime_seconds": now - self._started_at,
            **{name: getattr(self.report, name) for name in fields if name not in NOT_IN_STATUS},
            "classes": len(self.log.labels),
            "samples_per_second": self.samples_per_second,
        }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # checkpoints come and go meanwhile
        return 0
