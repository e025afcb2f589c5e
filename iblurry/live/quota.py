"""What a service accepts: limits of one request, how many samples may wait, how much disk is used, and refusals."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from iblurry.errors import InputError, counted

if TYPE_CHECKING:
    from iblurry.live.settings import Settings
    from iblurry.live.status import ServiceStatus

SAVE_SAMPLES = 1000  # a checkpoint is written after at most so many samples, or other operations
CHECKPOINTS = 3  # the newest, the one before it, and one that is being written
MIN_RETRY, MAX_RETRY = 2.0, 60.0  # seconds: Retry-After while the learning rate is unknown, and the longest
KEYS = 100_000  # idempotency keys remembered, those of the latest requests
PAGE = 4096  # bytes of an SQLite page
WAL = 16 * 2**20  # bytes that SQLite's write-ahead log is truncated to
CELL, USABLE = 80, 4000  # bytes beside a sample's label and pixels, and of a page for samples; both are upper bounds
CHARACTER = 4  # bytes of a label's, at most
PER_KEY, PER_CLASS = 400, 2048  # bytes


class Refusal(InputError):  # noqa: N818 - the request is at fault, not the service
    """A request that is not carried out.

    Parameters
    ----------
    status : int
        HTTP status.
    code : str
        Error code for programs, such as "queue_full".
    message : str
        For people: what was given, what is allowed, what to do.
    retry_after : float, optional
        Seconds after which the same request may succeed.
    is_whole : bool
        Whether the request as a whole is at fault, even if that was noticed at one of its entries.

    Attributes
    ----------
    index, field : int and str, optional
        Which entry of the request's JSON is at fault, and what of it: "image", "pixels", "array" or "label".
    """

    def __init__(
        self, status: int, code: str, message: str, *, retry_after: float | None = None, is_whole: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after
        self.is_whole = is_whole
        self.index: int | None = None
        self.field: str | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one request, and all requests together, may ask of a service; anything beyond is refused.

    Parameters
    ----------
    body : int
        Bytes of a request's body.
    pixels : int
        Pixels of one encoded picture, checked before it is decoded.
    batch : int
        Samples, or images to classify, in one request.
    label, key : int
        Characters of a label, and of an idempotency key.
    queue : int
        Samples accepted and not learnt yet.
    seconds : float
        Time for a request's body to arrive, and for a client to take its answer.
    head_seconds : float
        Time for a request's address and headers to arrive.
    connections : int
        Open connections.
    per_address : int
        Those of one address, unless it is a loopback one, from which a reverse proxy speaks for many.
    listeners : int
        Clients of /v1/events.
    questions : int
        Images that were asked about and are kept for a label that comes later.
    question_seconds : float
        How long they are kept.
    """

    body: int = 16 * 2**20
    pixels: int = 16_000_000
    batch: int = 256
    label: int = 200
    key: int = 200
    queue: int = 1000
    seconds: float = 30
    head_seconds: float = 10
    connections: int = 512
    per_address: int = 128
    listeners: int = 64
    questions: int = 1000
    question_seconds: float = 3600

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise InputError(f"The limit {limit.name}={getattr(self, limit.name)} must be above 0.")


class Quota:
    """How many samples may wait, and the disk space that follows from it.

    Operations stay in the log until two checkpoints include them, so the log holds the queue and a few checkpoint
    intervals more; corrections count as samples do.
    """

    def __init__(self, settings: Settings, limits: Limits) -> None:
        self.limits = limits
        self.samples = limits.queue + 3 * SAVE_SAMPLES  # in the log
        size = math.prod(settings.image)
        self.log_bytes = max_log_bytes(size, kept=self.samples, classes=settings.max_classes, label=limits.label)

    def check(self, count: int, *, status: ServiceStatus) -> None:
        """Raise a Refusal where `count` more samples are too many."""
        queue, log = self.limits.queue, status.log
        if count > queue:
            raise Refusal(413, "too_many", f"{count} samples are more than the queue can hold ({queue}); send fewer.")
        waiting = log.accepted - status.learnt
        if waiting + count > queue:
            wait, these = "waits" if waiting == 1 else "wait", "this one" if count == 1 else f"these {count}"
            message = f"{counted(waiting, 'sample')} {wait} to be learnt, of at most {queue}; send {these} again later."
            rate = status.samples_per_second  # 0 right after a start
            seconds = min(MAX_RETRY, (waiting + count - queue) / rate) if rate else MIN_RETRY
            retry_after = seconds if status.stalled is None else MAX_RETRY
            raise Refusal(429, "queue_full", message, retry_after=retry_after)
        if log.kept + count > self.samples:
            verb = "is" if log.kept == 1 else "are"
            why = f"because none could be written: {status.sentence}"
            message = f"{counted(log.kept, 'sample')} {verb} in no checkpoint yet, {why}"
            raise Refusal(507, "not_saved", message, retry_after=30)

    def disk_usage(self, folder: Path, status: ServiceStatus) -> dict[str, int | None]:
        """Bytes used now, None where the folder is gone or cannot be read, and the upper bound."""
        try:
            used = sum(_size(path) for path in folder.iterdir())
        except OSError:
            used = None
        return {
            "disk_bytes": used,
            "disk_most": self.log_bytes + 2 * WAL + CHECKPOINTS * status.report.checkpoint_most + 2**20,
        }


def max_log_bytes(sample: int, *, kept: int, classes: int, label: int) -> int:
    """Upper bound of the log's file for `kept` operations: samples of `sample` bytes, or up to two labels each."""
    cell = CELL + CHARACTER * label + max(sample, CHARACTER * label)
    pages = 1 / (USABLE // cell) if cell <= USABLE else 1 + math.ceil(cell / USABLE)  # of one sample
    return math.ceil(1.1 * kept * pages * PAGE) + KEYS * PER_KEY + classes * PER_CLASS + 2**20


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # checkpoints come and go meanwhile
        return 0
