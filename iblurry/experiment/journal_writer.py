"""Records on their way into the journal: in their order, each once its numbers are there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from iblurry.experiment.answer import Answer
from iblurry.experiment.budget import Holding
from iblurry.experiment.journal import Evaluation, Journal, Query, Record, TaskEnd


@dataclass(frozen=True)
class PendingQuery:
    """A query or the end of a task whose answer is on its way."""

    kind: type[Query | TaskEnd]
    at: int
    task: int
    answer: Answer
    rate: float
    updates: int

    def ready(self) -> bool:
        """Whether `record` would answer at once."""
        return self.answer.ready()

    def record(self) -> Query | TaskEnd:
        """Waits for the answer."""
        return self.kind(self.at, self.task, *self.answer.counts(), self.rate, self.updates)


class JournalWriter:
    """What waits for an answer holds up what comes behind it, so the journal is the same however late answers are."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.accuracy: float | None = None  # of the last evaluation written
        self._waiting: deque[Record | PendingQuery | Holding] = deque()

    def put(self, one: Record | PendingQuery | Holding) -> None:
        """Behind all others; written now if nothing has to be waited for."""
        self._waiting.append(one)
        self.write()

    def write(self) -> None:
        """Whatever is ready, up to the first that is not."""
        while self._waiting and _is_ready(self._waiting[0]):
            self._write_first()

    def flush(self) -> None:
        """Everything; waits for it."""
        while self._waiting:
            self._write_first()

    def _write_first(self) -> None:
        one = self._waiting.popleft()
        record: Record = one.record() if isinstance(one, PendingQuery | Holding) else one
        if isinstance(record, Evaluation):
            self.accuracy = record.accuracy
        self.journal.append(record)


def _is_ready(one: Record | PendingQuery | Holding) -> bool:
    return not isinstance(one, PendingQuery | Holding) or one.ready()
