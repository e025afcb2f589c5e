"""Searches with Optuna: trials are ordinary runs, pruned by their A_AUC so far; the same call continues a search."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from iblurry.data.dataset import Dataset
from iblurry.errors import DivergedError, InputError, StoppedError, UnknownNameError
from iblurry.experiment.callback import Callback
from iblurry.experiment.experiment import Experiment, canonical
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Query, decode_lines, read_bytes
from iblurry.experiment.result import Result
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run_all
from iblurry.storage.files import locked
from iblurry.studies.search.points import (
    FAILED,
    FINISHED,
    PRUNED,
    PointResult,
    SearchPoint,
    Space,
    a_auc_by_seed,
    apply_changes,
    check_spaces,
)

PRUNERS = ("median", "none")
_STARTUP = 5  # trials before any is pruned
_WARMUP = 0.1  # of the stream, in which no trial is pruned: few classes are known
_VALUES, _ERROR = "a_auc_percent", "error"  # user attributes of a trial


class Tuner:
    """A search for the fields of an experiment with the highest A_AUC on held-out training images.

    Optuna's journal `out`/`name`.log keeps the trials that have ended, and run folders the runs. What Optuna proposes
    is a function of these trials, so one that was interrupted is proposed again, and its runs continue.

    Parameters
    ----------
    row : str
        The method, with changes of its own, as `iblurry run` takes it.
    experiments : sequence of Experiment
        One for each seed, before anything is varied; `validate` is above 0.
    spaces : sequence of Space
        What is varied.
    dataset : Dataset
        The data, of which the experiments hold the name.
    config : LaunchConfig
        Where and how runs are run; with `again`, trials of an earlier search are deleted.
    pruner : {"median", "none"}
        "median" stops a trial whose A_AUC so far is below the median of the trials before at the same sample.
    """

    def __init__(
        self,
        row: str,
        experiments: Sequence[Experiment],
        spaces: Sequence[Space],
        *,
        dataset: Dataset,
        config: LaunchConfig,
        pruner: str = "median",
    ) -> None:
        if not spaces:
            raise InputError("A search needs at least one field to vary; give --space PATH=LOW..HIGH or PATH=A,B,C.")
        if pruner not in PRUNERS:
            raise UnknownNameError("pruner", pruner, PRUNERS)
        self.corners = check_spaces(experiments[0], spaces)
        self.row, self.experiments, self.spaces, self.config = row, tuple(experiments), tuple(spaces), config
        self.samples = min(len(experiment.order(dataset)) for experiment in experiments)
        self.pruner = pruner
        identity = {
            "experiments": [experiment.digest for experiment in experiments],
            "spaces": [str(space) for space in spaces],
            "corners": [corner.digest for corner in self.corners],  # holds the code of choices of the user's own
            "data": dataset.fingerprint(),
            "pruner": pruner,
        }
        digest = hashlib.sha256(canonical(identity).encode()).hexdigest()[:12]
        self.name = f"tune-{experiments[0].name.rsplit('-', 2)[0]}-{digest}"

    @property
    def journal(self) -> Path:
        """The file with the trials, which Optuna's tools read too."""
        return self.config.out / f"{self.name}.log"

    def run(self, trials: int, callback: Callable[[int, Experiment, str], Callback]) -> list[PointResult] | None:
        """Run trials until there are so many in all; None if SIGINT or SIGTERM came: the same call continues.

        Parameters
        ----------
        trials : int
            How many in all, those of earlier calls included.
        callback : callable
            Makes the callback of a run, from the trial's number, the experiment and its fields in words.
        """
        optuna = import_optuna()
        from optuna.trial import TrialState

        with self._open_study() as study:
            for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                study.tell(trial.number, state=TrialState.FAIL)  # interrupted; its values are proposed again
            distributions = {space.path: space.distribution(self.experiments[0]) for space in self.spaces}
            ended = (TrialState.COMPLETE, TrialState.PRUNED)
            while len(done := study.get_trials(deepcopy=False, states=ended)) < trials:
                study.sampler = optuna.samplers.TPESampler(seed=len(done))
                if not self._run_trial(study, study.ask(distributions), len(done), callback):
                    return None
            return [self._result(number, trial) for number, trial in enumerate(done[:trials])]

    @contextmanager
    def _open_study(self) -> Iterator[Any]:
        optuna = import_optuna()
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        with locked(self.journal.with_suffix(".lock"), timeout=2.0, remedy="choose another --out"):
            Path(f"{self.journal}.lock").unlink(missing_ok=True)  # Optuna's own, of a process that was killed
            if self.config.again:
                self.journal.unlink(missing_ok=True)
            _cut_torn_line(self.journal)
            pruner = optuna.pruners.MedianPruner(n_startup_trials=_STARTUP, n_warmup_steps=int(_WARMUP * self.samples))
            level = optuna.logging.get_verbosity()
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            try:
                yield optuna.create_study(
                    storage=JournalStorage(JournalFileBackend(str(self.journal))),
                    study_name=self.name,
                    direction="maximize",
                    load_if_exists=True,
                    pruner=pruner if self.pruner == "median" else optuna.pruners.NopPruner(),
                )
            finally:
                optuna.logging.set_verbosity(level)

    def _run_trial(
        self, study: Any, trial: Any, number: int, callback: Callable[[int, Experiment, str], Callback]
    ) -> bool:
        """Run a trial to its end, whatever that is; False if it is interrupted."""
        from optuna.trial import TrialState

        try:
            point = self._point(self._changes(trial))
            watch = _TrialWatch(trial, point, self.config.out, self.samples)
            callbacks = [[callback(number, experiment, str(point)), watch] for experiment in point.experiments]
            results: list[Result] = run_all(point.experiments, self.config, callbacks)
        except _PrunedError:
            study.tell(trial, state=TrialState.PRUNED)
        except (_UnfitError, DivergedError) as error:  # told as pruned, the sampler learns to stay away
            trial.set_user_attr(_ERROR, str(error))
            study.tell(trial, state=TrialState.PRUNED)
        else:
            values = a_auc_by_seed(results)
            if not values:
                return False
            watch.update(may_prune=False)  # runs that were finished before called nothing
            trial.set_user_attr(_VALUES, {str(seed): value for seed, value in values.items()})
            study.tell(trial, fmean(values.values()) / 100)
        return True

    def _changes(self, trial: Any) -> dict[str, str]:
        return {space.path: space.format(trial.params[space.path]) for space in self.spaces}

    def _point(self, changes: dict[str, str]) -> SearchPoint:
        try:
            return SearchPoint(self.row, changes, tuple(apply_changes(one, changes) for one in self.experiments))
        except InputError as error:  # values that do not go together
            raise _UnfitError(str(error)) from error

    def _result(self, number: int, trial: Any) -> PointResult:
        """A trial that has ended, from Optuna's journal."""
        changes, note = self._changes(trial), trial.user_attrs.get(_ERROR, "")
        values = {int(seed): value for seed, value in trial.user_attrs.get(_VALUES, {}).items()}
        state = FINISHED if values else FAILED if note else PRUNED
        steps = {step: 100 * value for step, value in trial.intermediate_values.items()}
        try:
            point = self._point(changes)
        except _UnfitError:
            point = SearchPoint(self.row, changes, ())
        return PointResult(point, values, state, note, number, steps)


class _TrialWatch(Callback):
    """Tells Optuna the A_AUC so far of a trial's runs, query by query, as their journals grow.

    With several seeds that is their mean, once all have come to the query.
    """

    def __init__(self, trial: Any, point: SearchPoint, out: Path, samples: int) -> None:
        self.trial = trial
        self.readers = [CurveReader(out / experiment.name) for experiment in point.experiments]
        self.every = point.experiments[0].query_every
        self.last = samples // self.every * self.every  # the last query: a trial that has come there is not pruned
        self.reported: set[int] = set()
        self.is_pruned = False

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        if position // self.every > len(self.reported):
            self.update()

    def update(self, *, may_prune: bool = True) -> None:
        """Report the queries that are new; _PrunedError where the trial should end."""
        if self.is_pruned:  # the other seeds are being stopped
            return
        curves = [reader.read() for reader in self.readers]
        for step in sorted(set.intersection(*map(set, curves)) - self.reported):
            means = [fmean(value for at, value in curve.items() if at <= step) for curve in curves]
            self.trial.report(fmean(means), step)
            self.reported.add(step)
            if may_prune and step < self.last and self.trial.should_prune():
                self.is_pruned = True
                raise _PrunedError


class CurveReader:
    """Reads the curve of a run from its journal while that grows, and from its beginning where it was cut back."""

    def __init__(self, folder: Path) -> None:
        self.folder = RunFolder(folder)
        self.seen = b""  # whole lines of the journal
        self.curve: dict[int, float] = {}

    def read(self) -> dict[int, float]:
        """Accuracy by samples seen; empty while the run has not begun."""
        path, data = self.folder.journal, b""
        with suppress(FileNotFoundError):  # not begun
            data = read_bytes(path)
        lines = data[: data.rfind(b"\n") + 1]  # without a line that is still being written
        if not lines.startswith(self.seen):
            self.seen, self.curve = b"", {}
        new = lines[len(self.seen) :].splitlines()
        records = decode_lines(path, new, first=1 + self.seen.count(b"\n"))
        self.curve |= {record.at: record.accuracy for record in records if isinstance(record, Query)}
        self.seen = lines
        return self.curve


class _PrunedError(StoppedError):
    """Ends the runs of a trial; they keep their last checkpoints."""


class _UnfitError(StoppedError):
    """The values of a trial do not go together."""


def import_optuna() -> Any:
    """Optuna; InputError where it is not installed."""
    found = find_spec("optuna")
    if found is None or found.origin is None:
        raise InputError("A search needs optuna, which is not installed; pip install 'iblurry[tune]'.")
    import optuna

    return optuna


def _cut_torn_line(path: Path) -> None:
    """Take away a last line without its end, which a power failure left; Optuna would not read on."""
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
