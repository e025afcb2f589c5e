"""What a service accepts: limits of requests, upper bounds of what its log takes, and refusals."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from iblurry.errors import InputError

SAVE_SAMPLES = 1000  # a checkpoint is written after at most so many samples, or other operations
BATCH = 256  # samples, or images to classify, in one request
LABEL, KEY = 200, 200  # characters of a label, and of an idempotency key
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
    queue : int
        Samples accepted and not learnt yet.
    seconds : float
        Time for a request's body to arrive, and for a client to send its next request.
    connections : int
        Open connections.
    listeners : int
        Clients of /v1/events.
    questions : int
        Images that were asked about and are kept for a label that comes later.
    question_seconds : float
        How long they are kept.
    """

    body: int = 16 * 2**20
    pixels: int = 16_000_000
    queue: int = 1000
    seconds: float = 30
    connections: int = 512
    listeners: int = 64
    questions: int = 1000
    question_seconds: float = 3600

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise InputError(f"The limit {limit.name}={getattr(self, limit.name)} must be above 0.")


def max_log_operations(limits: Limits) -> int:
    """Return how many operations a log may hold: the queue, and a few checkpoint intervals more.

    They stay in it until two checkpoints include them; corrections count as samples do.
    """
    return limits.queue + 3 * SAVE_SAMPLES


def max_log_bytes(sample: int, *, kept: int, classes: int) -> int:
    """Return an upper bound of the log's file: `kept` samples of `sample` bytes, or operations of up to two labels."""
    cell = CELL + CHARACTER * LABEL + max(sample, CHARACTER * LABEL)
    pages = 1 / (USABLE // cell) if cell <= USABLE else 1 + math.ceil(cell / USABLE)  # of one sample
    return math.ceil(1.1 * kept * pages * PAGE) + KEYS * PER_KEY + classes * PER_CLASS + 2**20
