"""A thread that handles the requests of many callers, several at once."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class BatchWorker(ABC, Generic[Request, Answer]):
    """Requests that wait are handled together, up to a total size of `most`; each is answered by a future."""

    def __init__(self, name: str, *, most: int) -> None:
        self._most = most
        self._waiting: queue.SimpleQueue[tuple[Request, Future[Answer]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def handle(self, requests: list[Request]) -> Sequence[Answer | Exception]:
        """One answer for each; an error that it raises is that of all of them."""

    def size(self, request: Request) -> int:
        return 1

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Request) -> Future[Answer]:
        future: Future[Answer] = Future()
        self._waiting.put((request, future))
        return future

    def close(self) -> None:
        """Answer what waits, and end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            batch, total = [item], self.size(item[0])
            while total < self._most and not self._waiting.empty():
                if (item := self._waiting.get()) is None:
                    self._waiting.put(None)  # after this batch
                    break
                batch.append(item)
                total += self.size(item[0])
            self._answer([each for each in batch if each[1].set_running_or_notify_cancel()])

    def _answer(self, batch: list[tuple[Request, Future[Answer]]]) -> None:
        if not batch:
            return
        try:
            answers = self.handle([request for request, _ in batch])
        except Exception as error:
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
