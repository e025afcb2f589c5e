"""What a service knows about itself: the accuracy of its answers before it learns (`Quality`), and its status."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import counted
from iblurry.live.log import SampleLog
from iblurry.live.messages import CheckpointSaved, LearnerReport, Message, ProcessLost, Snapshot, Stalled, Warned
from iblurry.live.quota import WAL, Limits, Refusal, max_log_bytes, max_log_operations
from iblurry.live.settings import Settings
from iblurry.version import __version__

CHECKPOINTS = 3  # the newest, the one before it, and one that is being written
MIN_RETRY, MAX_RETRY = 2.0, 60.0  # seconds: Retry-After while the learning rate is unknown, and the longest
WINDOW = 1000  # samples that count as recent; drift compares them with as many before them
POINTS = 400  # of the curve, at most: then every other one is dropped
FIRST_EVERY = 10  # samples between two points, at first
UNTESTED, NO_CLASS = -1, -2  # in place of an answer; the second names a class that was deleted, or is not known
DELETED = -1  # the row of a sample whose class was deleted
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


class Quality:
    """Prequential (test-then-train) accuracy, and how the mix of classes changes.

    The first sample of a class is not tested: the model cannot know it. `window` samples count as recent. `first`
    samples were learnt before the service began.
    """

    def __init__(self, classes: int, *, window: int = WINDOW, first: int = 0) -> None:
        self.window, self.first = window, first
        self.seen, self.tested, self.right = (np.zeros(classes, np.int64) for _ in range(3))  # by head row
        self.met = np.zeros(classes, np.int64)  # by head row: the number of its first sample; 0 where there is none
        self.at = 0
        self.rows = np.zeros(2 * window, np.int64)  # of the last samples, a ring buffer
        self.answers = np.full(2 * window, UNTESTED, np.int64)  # what was answered to them before they were learnt
        self.totals = [0, 0]  # tested and right since the beginning, whatever became of their classes
        self.every = FIRST_EVERY
        self.points: list[dict[str, Any]] = []

    def record(self, row: int, answer: int) -> None:
        """The next sample, before it is learnt: its class and the model's answer, both as rows of the head."""
        place = self.at % len(self.rows)
        self.rows[place], self.answers[place] = row, answer
        self.at += 1
        if not self.seen[row]:
            self.met[row] = self.first + self.at
        self.seen[row] += 1
        if answer != UNTESTED:
            is_right = int(answer == row)
            self.tested[row] += 1
            self.right[row] += is_right
            self.totals = [self.totals[0] + 1, self.totals[1] + is_right]

    def close_class(self, row: int, into: int | None) -> None:
        """A class was merged into another, which takes over its counts, or deleted with them.

        Recent answers that took one of two merged classes for the other are right from now on; those that name a
        deleted class stay wrong.
        """
        for counts in (self.seen, self.tested, self.right):
            if into is not None:
                counts[into] += counts[row]
            counts[row] = 0
        if into is not None:
            self.met[into] = min(filter(None, (self.met[row], self.met[into])), default=0)
        self.met[row] = 0
        recent = self.rows == row
        if into is None:
            self.answers[recent] = UNTESTED
        self.rows[recent] = DELETED if into is None else into
        self.answers[self.answers == row] = NO_CLASS if into is None else into

    def add_point(
        self, *, learning_rate: float, classes: int, time: float | None = None, held_out_accuracy: float | None = None
    ) -> dict[str, Any] | None:
        """A new point of the curve, if one is due."""
        if self.at % self.every:
            return None
        point = {
            "at": self.first + self.at,
            "time": time,
            "accuracy": self.accuracy,
            "recent_accuracy": self.recent_accuracy,
            "tested": self.totals[0],
            "right": self.totals[1],
            "held_out_accuracy": held_out_accuracy,
            "learning_rate": learning_rate,
            "classes": classes,
        }
        self.points.append(point)
        if len(self.points) > POINTS:
            self.every *= 2
            self.points = [kept for kept in self.points if (kept["at"] - self.first) % self.every == 0]
        return point

    @property
    def accuracy(self) -> float | None:
        """Over all tested samples."""
        tested = int(self.tested.sum())
        return int(self.right.sum()) / tested if tested else None

    @property
    def recent_accuracy(self) -> float | None:
        recent = self._window(0)
        return _accuracy(self.rows[recent], self.answers[recent])

    @property
    def drift(self) -> float | None:
        """Total variation between the class shares of the last two windows, 0 to 1; None before there are two."""
        recent, before = self._shares()
        return None if before is None else float(np.abs(recent - before).sum() / 2)

    def classes(self, labels: list[str]) -> list[dict[str, Any]]:
        """The rows of /v1/classes."""
        recent, before = self._shares()
        rows, answers = self.rows[self._window(0)], self.answers[self._window(0)]
        return [
            {
                "label": label,
                "first": int(self.met[row]) or None,
                "seen": int(self.seen[row]),
                "tested": int(self.tested[row]),
                "right": int(self.right[row]),
                "accuracy": int(self.right[row]) / int(self.tested[row]) if self.tested[row] else None,
                "recent_accuracy": _accuracy(rows[rows == row], answers[rows == row]),
                "recent_share": float(recent[row]),
                "before_share": None if before is None else float(before[row]),
            }
            for row, label in enumerate(labels)
        ]

    def confusion(self, labels: list[str]) -> list[dict[str, Any]]:
        """Which classes were taken for which within the recent window: the entries of /v1/confusion.

        Only pairs that occurred, so there are at most `window` of them, however many classes there are.
        """
        recent = self._window(0)
        rows, answers = self.rows[recent], self.answers[recent]
        tested = answers != UNTESTED
        pairs, counts = np.unique(np.stack([rows[tested], answers[tested]]), axis=1, return_counts=True)
        return [
            {"label": labels[row], "answer": None if answer == NO_CLASS else labels[answer], "count": count}
            for (row, answer), count in zip(pairs.T.tolist(), counts.tolist(), strict=True)
        ]

    def _shares(self) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Class shares in the recent window and in the one before it; None while that is not full."""
        windows = (self.rows[self._window(back)] for back in (0, 1))
        recent, before = (np.bincount(rows[rows != DELETED], minlength=len(self.seen)) for rows in windows)
        whole = self.at >= 2 * self.window
        return recent / max(1, recent.sum()), before / self.window if whole else None

    def _window(self, back: int) -> NDArray[np.int64]:
        """Places in the ring buffer of the window that ended `back` windows ago."""
        end = self.at - back * self.window
        return np.arange(max(0, end - self.window), max(0, end)) % len(self.rows)

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name) for name in ("seen", "tested", "right", "met", "rows", "answers")}
        numbers = {"at": self.at, "first": self.first, "window": self.window, "every": self.every}
        return arrays | numbers | {"totals": self.totals, "points": self.points}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.state_dict():
            setattr(self, name, state[name])


def _accuracy(rows: NDArray[np.int64], answers: NDArray[np.int64]) -> float | None:
    """Share of right answers among the tested samples."""
    tested = answers != UNTESTED
    return int((rows == answers)[tested].sum()) / int(tested.sum()) if tested.any() else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # checkpoints come and go meanwhile
        return 0
