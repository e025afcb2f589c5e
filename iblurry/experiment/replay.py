"""Replay: the journal of a run that has taken place, told to a callback as if the run took place now."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iblurry.errors import InputError
from iblurry.experiment.callback import Callback
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Evaluation, NewClass, Query, Record, Start, TaskEnd, read
from iblurry.experiment.metrics import Metrics, metrics, stopped

if TYPE_CHECKING:
    from iblurry.experiment.experiment import Experiment


def replay(folder: Path | str, callback: Callback) -> ReplayedRun:
    """Call a callback's methods for what a run's journal holds: new classes, queries, ends of tasks, the run's end.

    The run is only read. It may be unfinished; then `on_train_end` is not called. There is no learner, so that methods
    that need one (`on_update`, `on_sample`) are not called.

    Parameters
    ----------
    folder : Path or str
        The run's folder.
    callback : Callback
        Such as TensorBoard(), or one of your own that reads `run.records` or `run.metrics`.
    """
    run: Any = ReplayedRun(Path(folder))
    if not run.journal:
        return run  # type: ignore[no-any-return]
    callback.on_run_start(run.folder.resolve().name, 0, run.samples)
    callback.on_train_start(run)
    for number, record in enumerate(run.journal, start=1):
        run.records = run.journal[:number]
        if isinstance(record, NewClass):
            callback.on_new_class(run, record.label)
        elif isinstance(record, Query):
            callback.on_query(run, record)
            callback.on_progress(record.at, record.accuracy, record.rate)
        elif isinstance(record, TaskEnd):
            callback.on_task_end(run, record)
    if run.is_finished:
        callback.on_train_end(run)
        callback.on_run_end()
    return run  # type: ignore[no-any-return]


class ReplayedRun:
    """A run that has taken place as a callback sees it: like `RunState`, but nothing can be logged, asked or stopped.

    Parameters
    ----------
    folder : Path
        The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = RunFolder(folder)
        files.about()  # FolderError if this is no run
        self._summary = files.summary()  # before the journal: of a finished run that is then complete
        begun = files.journal.exists()
        self.journal = read(files.journal, partial=self._summary is None) if begun else []  # all of it
        self.records: Sequence[Record] = []  # up to now
        self.stop_reason = stop.reason if (stop := stopped(self.journal)) is not None else None

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        return self._summary is not None

    @cached_property
    def experiment(self) -> Experiment:
        """What was run."""
        return RunFolder(self.folder).experiment()

    @property
    def position(self) -> int:
        """Samples learned."""
        return max((record.at for record in self.records if not isinstance(record, Start)), default=0)

    @property
    def samples(self) -> int:
        """Samples in the whole stream."""
        return next(record.samples for record in self.journal if isinstance(record, Start))

    @property
    def task(self) -> int:
        """The task of the last evaluation, from 0."""
        return next((record.task for record in reversed(self.records) if isinstance(record, Evaluation)), 0)

    @property
    def metrics(self) -> Metrics:
        """A_AUC, A_avg, A_last and F_last so far."""
        return metrics(self.records)

    @property
    def seconds(self) -> float:
        """Spent on the run, all of it."""
        spent = self._summary or RunFolder(self.folder).environment() or {}
        return float(spent.get("seconds", 0.0))

    def log(self, name: str, value: float) -> None:
        """Raise InputError: the journal is written."""
        raise InputError(f"run.log({name!r}) in a replay of {self.folder}: its journal is not changed; run it again.")

    def stop(self, reason: str) -> None:
        """Raise InputError: the run is over."""
        raise InputError(f"run.stop({reason!r}) in a replay of {self.folder}: that run is over; run it again.")
