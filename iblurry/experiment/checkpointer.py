"""A run's checkpoints: when the next is due, what it holds, and how a run resumes from the last good one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iblurry.errors import check_fields
from iblurry.experiment.journal import Journal, Start
from iblurry.experiment.run_callbacks import RunCallbacks
from iblurry.storage import checkpoint
from iblurry.streams.iterator import StreamIterator

Progress = tuple[int, int, int]  # samples seen, bytes of the journal, updates of the refit under way
TIME_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class CheckpointPolicy:
    """How often a run is saved; whichever comes first.

    Parameters
    ----------
    seconds : float
        Time between two checkpoints; longer if saving, for example of a large memory, would take more than
        `share` of the time.
    samples : int, optional
        Samples between two checkpoints, however long saving takes; None: only the time counts.
    share : float
        Fraction of the time that checkpoints by the clock may take, in (0, 1]; 1: no limit. A pack of runs shares it.
    """

    seconds: float = 30
    samples: int | None = None
    share: float = TIME_SHARE

    def __post_init__(self) -> None:
        check_fields(self, {"seconds": "[0, inf]", "samples": "[1, inf)", "share": "(0, 1]"})


class Periodic:
    """An action that is due every so many seconds, or less often where it takes more than its share of the time.

    Parameters
    ----------
    action : callable
        What is done.
    seconds : float
        From the end of one to the next, at least.
    longest : float
        The same at most, even if that is more than its share.
    share : float
        Of the time that the action may take, in (0, 1]; 1: no limit.
    """

    def __init__(
        self,
        action: Callable[[], None],
        seconds: float,
        *,
        longest: float = float("inf"),
        share: float = TIME_SHARE,
    ) -> None:
        self.action, self.seconds, self.longest, self.share = action, seconds, longest, share
        self.due_at = time.monotonic() + seconds

    def run(self) -> None:
        """Do it now."""
        started = time.monotonic()
        self.action()
        now = time.monotonic()
        pause = (now - started) * (1 / self.share - 1)
        self.due_at = now + min(self.longest, max(self.seconds, pause))

    def run_if_due(self) -> None:
        if time.monotonic() >= self.due_at:
            self.run()


class Checkpointer:
    """Saves and restores a run; a checkpoint holds the learner's state and the journal's length and digest.

    Parameters
    ----------
    callbacks : RunCallbacks
        The run that is saved, in its folder, where the newest checkpoint and the one before it are kept; and the
        callbacks that take part in it, if there are any.
    stream : StreamIterator
        What is learned, with the position of the run.
    journal : Journal
        Keeps the run's records.
    policy : CheckpointPolicy
        How often to save.
    """

    def __init__(
        self, callbacks: RunCallbacks, stream: StreamIterator, journal: Journal, policy: CheckpointPolicy
    ) -> None:
        run = callbacks.run
        self.folder, self.experiment, self.learner = run.folder, run.experiment, run.learner
        self.callbacks, self.stream, self.journal, self.policy = callbacks, stream, journal, policy
        self.last: Progress = (0, 0, 0)
        self._arguments = run.learner.config.to_json()  # with which Learner.load makes it again
        self._trusted: set[int] = set()  # checkpoints, by their samples
        self._periodic = Periodic(self._save, policy.seconds, share=policy.share)

    def resume(self, on_message: Callable[[str], None]) -> None:
        """Go back to the last intact checkpoint that fits the journal, or to the beginning."""
        written, digest = self.journal.path.read_bytes(), self.experiment.digest

        def accept(state: dict[str, Any]) -> str | None:
            if state["experiment"] != digest:
                return "it belongs to another experiment"
            if state["journal"]["bytes"] > len(written):
                return "the journal is shorter than when it was saved"
            if state["journal"] != _journal_digest(written[: state["journal"]["bytes"]]):
                return "the journal has changed since it was saved"
            self.learner.load_state_dict(state["learner"])
            self.learner.context.queries.load_state_dict(state["queries"])
            if "callbacks" in state:
                self.callbacks.load_state_dict(state["callbacks"])
            return None

        loaded = checkpoint.load_latest(self.folder, accept=accept)
        if loaded is None:
            self.journal.truncate(0)
            ends = tuple(self.stream.order.ends)
            self.journal.put(Start(digest, len(self.stream), ends, self.experiment.query_every))
            return
        for text in loaded.skipped:
            on_message(text)
        self.journal.truncate(loaded.state["journal"]["bytes"])
        self.stream.seek(loaded.at)
        self._trusted.add(loaded.at)
        self.last = self._progress()

    def is_due(self, now: float) -> bool:
        """Whether a checkpoint is due by the clock."""
        return now > self._periodic.due_at

    def is_due_at(self, at: int) -> bool:
        """Whether a checkpoint is due by the samples seen."""
        return self.policy.samples is not None and at % self.policy.samples == 0

    def save(self) -> None:
        """Write a checkpoint unless nothing has changed since the last; DivergedError if the network is not finite."""
        self._periodic.run()

    def _save(self) -> None:
        self.journal.flush()
        self.learner.check()
        self.learner.check_weights()
        if (progress := self._progress()) != self.last:
            self.journal.sync()
            state = {
                "arguments": self._arguments,
                "experiment": self.experiment.digest,
                "learner": self.learner.state_dict(),
                "queries": self.learner.context.queries.state_dict(),
                "journal": _journal_digest(self.journal.path.read_bytes()),
            } | ({"callbacks": self.callbacks.state_dict()} if self.callbacks else {})
            checkpoint.save(self.folder, state, at=self.stream.position, trusted=self._trusted)
            self._trusted.add(self.stream.position)
            self.last = progress

    def describe_last(self) -> str:
        """A sentence for the user on what a failed run can continue from."""
        if not self.last[0]:
            return f"Nothing has been saved in {self.folder} yet."
        return f"The last good checkpoint, at sample {self.last[0]}, is kept in {self.folder}."

    def _progress(self) -> Progress:
        """How far everything that a checkpoint holds has come."""
        refit = self.learner.refitter.trainer
        return self.stream.position, self.journal.path.stat().st_size, refit.context.updates if refit else 0


def _journal_digest(journal: bytes) -> dict[str, Any]:
    """What a checkpoint records of the journal: its length and SHA-256."""
    return {"bytes": len(journal), "sha256": hashlib.sha256(journal).hexdigest()}
