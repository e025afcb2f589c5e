"""Questions: the images that were asked about lately, so that their labels can be sent later by an id alone."""

from __future__ import annotations

import math
import secrets
import threading
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iblurry.data.images import Shape
from iblurry.live.quota import Limits, Refusal

BYTES = 64 * 2**20  # of all images that are kept, at most
REMEDY = "send the picture itself to /v1/learn"


@dataclass
class _Question:
    """An image (C, H, W), and when it was asked about, in seconds of the monotonic clock."""

    pixels: NDArray[np.uint8] | None  # None once it has its label
    at: float


class QuestionStore:
    """Images that were asked about, in memory alone: at most `limits.questions`, none older than
    `limits.question_seconds`.

    An id is `START-NUMBER`; START is new with every start of the service, so that ids from before it are recognised.
    May be used by several threads.
    """

    def __init__(self, shape: Shape, limits: Limits) -> None:
        self.limit = max(1, min(limits.questions, BYTES // math.prod(shape)))
        self.seconds = limits.question_seconds
        self._start, self._asked = secrets.token_hex(4), 0
        self._kept: dict[int, _Question] = {}  # the latest, by their numbers
        self._lock = threading.Lock()

    def add(self, images: NDArray[np.uint8]) -> list[str]:
        """An id for each of them, (B, C, H, W)."""
        now = time.monotonic()
        with self._lock:
            first = self._asked + 1
            for image in images:
                self._asked += 1
                self._kept[self._asked] = _Question(image.copy(), now)
                self._kept.pop(self._asked - self.limit, None)
            return [f"{self._start}-{number}" for number in range(first, self._asked + 1)]

    def take(self, question: str) -> NDArray[np.uint8]:
        """The image of an id, which is then used up; Refusal where it is not there (any more)."""
        start, _, digits = question.partition("-")
        number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else 0
        with self._lock:
            if start != self._start or not 1 <= number <= self._asked:
                message = f"No answer had the id {question!r} since the last start of the service; {REMEDY}."
                raise Refusal(404, "unknown_question", message)
            found = self._kept.get(number)
            if found is not None and found.pixels is None:
                message = f"The answer {question!r} has its label already; if that was wrong, relabel the sample."
                raise Refusal(409, "labelled_before", message)
            if found is None or time.monotonic() - found.at > self.seconds:
                kept = f"the last {self.limit:,} are kept, for {self.seconds:,.0f} seconds"
                raise Refusal(410, "question_gone", f"The image of the answer {question!r} is gone: {kept}; {REMEDY}.")
            pixels, found.pixels = found.pixels, None
            assert pixels is not None
            return pixels

    def put_back(self, question: str, pixels: NDArray[np.uint8]) -> None:
        """The label of this id was not accepted after all."""
        with self._lock:
            if (found := self._kept.get(int(question.partition("-")[2]))) is not None:
                found.pixels = pixels
