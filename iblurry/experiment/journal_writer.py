"""The journal writer: puts records into the journal in their order, each once its numbers have left the device."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from iblurry.experiment.budget import PendingHeld
from iblurry.experiment.deferred import DeferredAnswer
from iblurry.experiment.evaluator import PendingAnswer
from iblurry.experiment.journal import Evaluation, Journal, Query, Record, TaskEnd


@dataclass(frozen=True)
class PendingQuery:
    """A query or the end of a task whose answer is still on the device."""

    kind: type[Query | TaskEnd]
    at: int  # samples seen
    task: int
    answer: PendingAnswer | DeferredAnswer
    lr: float
    updates: int

    def ready(self) -> bool:
        """Whether `record` would return at once."""
        return self.answer.ready()

    def record(self) -> Query | TaskEnd:
        """Wait for the answer."""
        return self.kind(self.at, self.task, *self.answer.counts(), self.lr, self.updates)


class JournalWriter:
    """Writes in the order of `put`, so the journal is the same however late answers come.

    Parameters
    ----------
    journal : Journal
        Where to write.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.accuracy: float | None = None  # of the last evaluation written
        self.kept: list[Record] | None = None  # what was written, where callbacks want to read it
        self._waiting: deque[Record | PendingQuery | PendingHeld] = deque()

    def put(self, record: Record | PendingQuery | PendingHeld) -> None:
        """Append a record, and write what is ready."""
        self._waiting.append(record)
        self.write()

    def write(self) -> None:
        """Write what is ready, up to the first record that is not."""
        while self._waiting and _is_ready(self._waiting[0]):
            self._write_first()

    def flush(self, *, deferred: bool = True) -> None:
        """Write everything, waiting for answers; without `deferred`, up to one whose network is not trained yet."""
        while self._waiting and (deferred or not _is_deferred(self._waiting[0])):
            self._write_first()

    def _write_first(self) -> None:
        first = self._waiting.popleft()
        record: Record = first.record() if isinstance(first, PendingQuery | PendingHeld) else first
        if isinstance(record, Evaluation):
            self.accuracy = record.accuracy
        self.journal.append(record)
        if self.kept is not None:
            self.kept.append(record)


def _is_ready(record: Record | PendingQuery | PendingHeld) -> bool:
    return not isinstance(record, PendingQuery | PendingHeld) or record.ready()


def _is_deferred(record: Record | PendingQuery | PendingHeld) -> bool:
    answer = record.answer if isinstance(record, PendingQuery) else None
    return isinstance(answer, DeferredAnswer) and answer.found is None
