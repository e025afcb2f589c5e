"""What a run's folder holds: its records and the numbers computed from them, read, or told to a callback once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.callback import Callback
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Evaluation, NewClass, Query, Record, Start, Stopped, TaskEnd, read
from iblurry.experiment.metrics import (
    CLASS_METRICS,
    CURVES,
    REDUCTIONS,
    Metrics,
    Points,
    logged,
    metrics,
    stopped,
    worst_cases,
)

if TYPE_CHECKING:
    from iblurry.experiment.experiment import Experiment


@dataclass(frozen=True)
class Result:
    """A run as far as it got.

    Parameters
    ----------
    folder : Path
        The run's folder.
    experiment : Experiment
        What was run.
    records : list of Record
        The journal's lines; empty for a run that was not begun.
    metrics : Metrics
        Computed from the records.
    summary : dict or None
        The content of summary.json: metrics, seconds and compute; None while the run is not finished.
    """

    folder: Path
    experiment: Experiment
    records: list[Record]
    metrics: Metrics
    summary: dict[str, Any] | None

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The content of environment.json: versions, device, seconds spent; empty if it was not kept."""
        return RunFolder(self.folder).environment() or {}

    @property
    def pretrained(self) -> bool:
        """Whether the body started with weights from elsewhere, as the summary says, or else the network's name."""
        return bool((self.summary or {}).get("pretrained")) or self.experiment.pretrained

    @cached_property
    def logged(self) -> dict[str, list[tuple[int, float]]]:
        """What callbacks logged, by name: samples seen and the value, in the order it was logged."""
        return logged(self.records)

    def curve(self, name: str) -> Points:
        """Samples seen and value: of what callbacks logged, or of `min_acc` and the like at every query, in fractions.

        Parameters
        ----------
        name : str
            A name of `logged`, or balanced_acc, forgetting, min_acc, wc_acc, worst_class, klr, kgr and so on.
        """
        if name in CURVES:
            return CURVES[name](self.records)
        if name not in self.logged:
            raise UnknownNameError("curve", name, [*CURVES, *self.logged])
        return self.logged[name]

    def metric(self, name: str) -> float | None:
        """A number as `--metric` names it, in a fraction where that prints percent; None where it is not defined.

        Parameters
        ----------
        name : str
            A field of `metrics` (`a_auc`), aaa, wf10, wf100, wp10 or wp100, or a curve: its last value, or
            `forgetting:mean`, `:min`, `:max`.
        """
        if name in Metrics.__dataclass_fields__:
            value: float | None = getattr(self.metrics, name)
            return value
        if name in CLASS_METRICS:
            return CLASS_METRICS[name](self.records)
        word, _, reduction = name.partition(":")
        if reduction and reduction not in REDUCTIONS:
            raise UnknownNameError(f"way to take {word}", reduction, REDUCTIONS)
        values = [value for _, value in self.curve(word)]
        return REDUCTIONS[reduction or "last"](values) if values else None

    @cached_property
    def worst_cases(self) -> dict[str, float]:
        """The least accuracy of each class since it counts as learnt, by label."""
        return worst_cases(self.records)

    @property
    def stopped(self) -> Stopped | None:
        """Where (`at`) and why (`reason`) a callback ended the run before its stream; None: none did."""
        return stopped(self.records)


def read_result(folder: RunFolder, experiment: Experiment | None = None) -> Result:
    """Read a run's result from its files alone.

    Parameters
    ----------
    folder : RunFolder
        The run's folder; it may be missing if `experiment` is given.
    experiment : Experiment, optional
        What is run there; by default what experiment.json says.
    """
    summary = folder.summary()
    has_begun = summary is not None or folder.journal.exists()
    records = read(folder.journal, partial=summary is None) if has_begun else []
    return Result(folder.path, experiment or folder.experiment(), records, metrics(records), summary)


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
