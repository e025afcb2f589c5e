"""A run's checkpoints: when the next is due, what it holds, and the way back to the last good one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iblurry.errors import DivergedError, InputError
from iblurry.experiment import checkpoint
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Start
from iblurry.experiment.journal_writer import JournalWriter
from iblurry.learner import Learner
from iblurry.streams.stream import Stream

Moment = tuple[int, int, int]  # samples met, bytes of the journal, updates of the refit under way


@dataclass(frozen=True, kw_only=True)
class CheckpointPolicy:
    """How often a run is saved; whichever comes first."""

    seconds: float = 30
    samples: int | None = None

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise InputError(
                f"CheckpointPolicy(seconds={self.seconds}): give the seconds between two checkpoints, from 0."
            )
        if self.samples is not None and self.samples < 1:
            raise InputError(
                f"CheckpointPolicy(samples={self.samples}): give the samples between two checkpoints, from 1."
            )


class Checkpointer:
    """A checkpoint holds the learner and remembers the journal, which has all its lines by then."""

    def __init__(
        self,
        start: Start,
        folder: RunFolder,
        stream: Stream,
        learner: Learner,
        outbox: JournalWriter,
        often: CheckpointPolicy,
    ) -> None:
        self.start, self.folder, self.stream, self.learner = start, folder, stream, learner
        self.outbox, self.often = outbox, often
        self.last: Moment = (0, 0, 0)
        self._trusted: set[int] = set()  # checkpoints, by their samples
        self._when = time.monotonic()

    def resume(self, say: Callable[[str], None]) -> None:
        """Back to the last checkpoint that can be trusted, or to the beginning."""
        written = self.folder.journal.read_bytes()

        def fits(state: dict[str, Any]) -> str | None:
            if state["experiment"] != self.start.experiment:
                return "it belongs to another experiment"
            if state["journal"]["bytes"] > len(written):
                return "the journal is shorter than it remembers"
            if state["journal"] != _seal(written[: state["journal"]["bytes"]]):
                return "the journal is not what it remembers"
            return self._miscounts(state["learner"]["counters"]["spent"]["forward"])

        loaded = checkpoint.load_latest(self.folder.path, accept=fits)
        if loaded is None:
            self.outbox.journal.truncate(0)
            self.outbox.put(self.start)
            return
        for sentence in loaded.skipped:
            say(sentence)
        self.learner.load_state_dict(loaded.state["learner"])
        self.learner.context.queries.load_state_dict(loaded.state["queries"])
        self.outbox.journal.truncate(loaded.state["journal"]["bytes"])
        self.stream.seek(loaded.at)
        self._trusted.add(loaded.at)
        self.last = self._moment()

    def _miscounts(self, counted: dict[str, int]) -> str | None:
        """Why its counts cannot go on: a part's images were once counted elsewhere; other methods do not mind."""
        apart = {part.purpose for part in self.learner.parts.values()} - counted.keys()
        return f"it was saved before {', '.join(sorted(apart))} was counted apart" if apart else None

    def is_due(self, now: float) -> bool:
        """By the clock."""
        return now - self._when > self.often.seconds

    def is_due_at(self, at: int) -> bool:
        """By the samples met."""
        return self.often.samples is not None and at % self.often.samples == 0

    def save(self) -> None:
        """Unless all is as it was saved last; DivergedError where it is not worth keeping."""
        self.outbox.flush()
        self._check_sound()
        if (moment := self._moment()) != self.last:
            self.outbox.journal.sync()
            seal = _seal(self.folder.journal.read_bytes())
            state = {
                "experiment": self.start.experiment,
                "learner": self.learner.state_dict(),
                "queries": self.learner.context.queries.state_dict(),
                "journal": seal,
            }
            checkpoint.save(self.folder.path, state, at=self.stream.position, trusted=self._trusted)
            self._trusted.add(self.stream.position)
            self.last = moment
        self._when = time.monotonic()

    def kept(self) -> str:
        """What is left to go on from, for someone whose run has failed."""
        if not self.last[0]:
            return f"Nothing had been saved in {self.folder.path} yet."
        return f"The last good checkpoint, at sample {self.last[0]}, is kept in {self.folder.path}."

    def _moment(self) -> Moment:
        """How far everything is that a checkpoint holds."""
        refit = self.learner.refitter.trainer
        return self.stream.position, self.folder.journal.stat().st_size, refit.context.updates if refit else 0

    def _check_sound(self) -> None:
        """The loss is that of the last update before its step, so a good loss alone does not mean a good network."""
        self.learner.check()
        for name, values in self.learner.context.network.state_dict().items():
            if not values.isfinite().all():
                raise DivergedError(
                    f"The network ({name}) holds no numbers any more at sample {self.stream.position}; a lower "
                    f"learning rate (schedule.initial_lr, now {self.learner.method.schedule.lr:.3g}) usually helps."
                )


def _seal(journal: bytes) -> dict[str, Any]:
    """What a checkpoint remembers of the journal."""
    return {"bytes": len(journal), "sha256": hashlib.sha256(journal).hexdigest()}
