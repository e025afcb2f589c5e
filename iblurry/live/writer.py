"""The writer: one thread that puts the samples of all waiting requests on the disk in one stroke."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from iblurry.live.exchange import Labelled, Receipt
from iblurry.live.log import Log, digest_of
from iblurry.live.refusal import Refusal

LOGGER = logging.getLogger(__name__)
TOGETHER = 64  # requests of one stroke: each costs the disk the same


class Request(NamedTuple):
    """Samples and who waits for them."""

    samples: Sequence[Labelled]
    key: str | None
    receipt: Future[Receipt]


class Writer:
    """`allow` says no, by raising a Refusal, to more samples than there is room for."""

    def __init__(self, log: Log, *, allow: Callable[[int], None], tell: Callable[[list[str]], None]) -> None:
        self.log, self._allow, self._tell = log, allow, tell
        self._waiting: queue.SimpleQueue[Request | int | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, samples: Sequence[Labelled], key: str | None) -> Future[Receipt]:
        """A receipt, once they are safe."""
        request = Request(samples, key, Future())
        self._waiting.put(request)
        return request.receipt

    def drop(self, upto: int) -> None:
        """Samples that are in two checkpoints."""
        self._waiting.put(upto)

    def close(self) -> None:
        """After what waits."""
        self._waiting.put(None)
        self._thread.join()
        self.log.close()

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while len(batch) < TOGETHER and not self._waiting.empty():
                batch.append(self._waiting.get())
            requests = [one for one in batch if isinstance(one, Request)]
            self._write([one for one in requests if one.receipt.set_running_or_notify_cancel()])
            if drops := [one for one in batch if isinstance(one, int)]:
                self._drop(max(drops))
            if None in batch:
                return

    def _write(self, requests: list[Request]) -> None:
        """Nobody hears of success before all of it is on the disk."""
        if not requests:
            return
        known = len(self.log.labels)
        done: list[tuple[Request, Receipt]] = []
        refused: list[tuple[Request, Refusal]] = []
        try:
            with self.log.writing():
                for request in requests:
                    try:
                        done.append((request, self._add(request)))
                    except Refusal as refusal:
                        refused.append((request, refusal))
        except Exception as error:  # of the stroke as a whole: whoever waits hears of it
            for request in requests:
                request.receipt.set_exception(error)
            return
        self._tell(self.log.labels[known:])
        for request, receipt in done:
            request.receipt.set_result(receipt)
        for request, reason in refused:
            request.receipt.set_exception(reason)

    def _add(self, request: Request) -> Receipt:
        """What was sent before needs no room."""
        samples, key, digest = request.samples, request.key, b""
        if key is not None:
            digest = digest_of(samples)
            if (repeated := self.log.repeated(key, digest)) is not None:
                return repeated
        self._allow(len(samples))
        return self.log.add(samples, key, digest)

    def _drop(self, upto: int) -> None:
        """A full disk may refuse even this; the next checkpoint asks again."""
        try:
            with self.log.writing():
                self.log.drop(upto)
        except Refusal as refusal:
            LOGGER.warning("Samples that are in checkpoints could not be dropped: %s", refusal)
