"""Searches with Optuna: trials are ordinary runs, pruned by their A_AUC so far; the same call continues a search."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from iblurry.studies.search.point import (
    FAILED,
    FINISHED,
    PRUNED,
    PointResult,
    SearchPoint,
    a_auc_by_seed,
    apply_changes,
)
from iblurry.studies.search.space import Space, check_spaces, is_whole

PRUNERS = ("median", "none")
STARTUP = 5  # trials before any is pruned
WARMUP = 0.1  # of the stream, in which no trial is pruned: few classes are known
CHANGES, VALUES, ERROR = "fields", "a_auc_percent", "error"  # user attributes of a trial
LOCK_SECONDS = 2.0


class Tuner:
    """A search for the fields of an experiment with the highest A_AUC on held-out training images.

    What Optuna proposes is a function of the trials before, so a search that was interrupted continues as if it had not
    been. Trials are kept in `out`/`name`.log, a journal of Optuna, and each is a run folder per seed.

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
        self.corners = check_spaces(experiments[0], spaces)
        self.row, self.experiments, self.spaces, self.config = row, tuple(experiments), tuple(spaces), config
        self.whole = {space.path: is_whole(experiments[0], space) for space in spaces}
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
        with self._open_study() as study:
            for number in range(trials):
                known = study.get_trials(deepcopy=False)
                if number < len(known) and known[number].state.is_finished():
                    continue
                if not self._run_trial(study, number, callback):
                    return None
            return [self._result(trial) for trial in study.get_trials(deepcopy=False)[:trials]]

    @contextmanager
    def _open_study(self) -> Iterator[Any]:
        optuna = import_optuna()
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        with locked(self.journal.with_suffix(".lock"), timeout=LOCK_SECONDS, remedy="choose another --out"):
            if self.config.again:
                self.journal.unlink(missing_ok=True)
            _cut_torn_line(self.journal)
            lock: Any = _NoLock()
            level = optuna.logging.get_verbosity()
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            try:
                yield optuna.create_study(
                    storage=JournalStorage(JournalFileBackend(str(self.journal), lock_obj=lock)),
                    study_name=self.name,
                    direction="maximize",
                    load_if_exists=True,
                    sampler=optuna.samplers.RandomSampler(),
                    pruner=_make_pruner(optuna, self.pruner, int(WARMUP * self.samples)),
                )
            finally:
                optuna.logging.set_verbosity(level)

    def _propose(self, study: Any, trial: Any) -> dict[str, str]:
        """Values by path; each draw has a seed of its own, so that an interrupted trial gets the same again."""
        optuna = import_optuna()
        changes = {}
        for space in self.spaces:
            study.sampler = optuna.samplers.TPESampler(seed=zlib.crc32(f"{trial.number} {space.path}".encode()))
            changes[space.path] = space.suggest(trial, whole=self.whole[space.path])
        return changes

    def _run_trial(self, study: Any, number: int, callback: Callable[[int, Experiment, str], Callback]) -> bool:
        """Run a new trial, or one that was interrupted, to its end, whatever that is; False if it is interrupted."""
        from optuna.trial import Trial, TrialState

        known = study.get_trials(deepcopy=False)
        trial = study.ask() if number == len(known) else Trial(study, known[number]._trial_id)
        reported = known[number].intermediate_values if number < len(known) else ()
        changes = self._propose(study, trial)
        trial.set_user_attr(CHANGES, changes)
        try:
            watch = _TrialWatch(trial, self._point(changes), self.config.out, self.samples, reported)
            results = watch.run(self.config, callback)
        except _PrunedError:
            study.tell(trial, state=TrialState.PRUNED)
        except (_UnfitError, DivergedError) as error:  # told as pruned, the sampler learns to stay away
            trial.set_user_attr(ERROR, str(error))
            study.tell(trial, state=TrialState.PRUNED)
        else:
            values = a_auc_by_seed(results)
            if not values:
                return False
            trial.set_user_attr(VALUES, {str(seed): value for seed, value in values.items()})
            study.tell(trial, sum(values.values()) / len(values) / 100)
        return True

    def _point(self, changes: dict[str, str]) -> SearchPoint:
        try:
            return SearchPoint(self.row, changes, tuple(apply_changes(one, changes) for one in self.experiments))
        except InputError as error:  # values that do not go together
            raise _UnfitError(str(error)) from error

    def _result(self, trial: Any) -> PointResult:
        """A trial that has ended, from Optuna's journal."""
        changes, note = trial.user_attrs[CHANGES], trial.user_attrs.get(ERROR, "")
        values = {int(seed): value for seed, value in trial.user_attrs.get(VALUES, {}).items()}
        state = FINISHED if values else FAILED if note else PRUNED
        steps = {int(step): 100 * value for step, value in trial.intermediate_values.items()}
        try:
            point = self._point(changes)
        except _UnfitError:
            point = SearchPoint(self.row, changes, ())
        return PointResult(point, values, state, note, trial.number, steps)


class _TrialWatch:
    """Reads the journals of a trial's runs as they grow, and tells Optuna the A_AUC so far at every query.

    With several seeds that is their mean, once all have come to the query.
    """

    def __init__(self, trial: Any, point: SearchPoint, out: Path, samples: int, reported: Iterable[int]) -> None:
        self.trial, self.point, self.reported = trial, point, set(reported)
        self.is_pruned = False
        self.readers = [CurveReader(out / experiment.name) for experiment in point.experiments]
        every = point.experiments[0].query_every
        self.last = samples // every * every  # the last query: a trial that has come there is not pruned

    def run(self, config: LaunchConfig, callback: Callable[[int, Experiment, str], Callback]) -> list[Result]:
        """Run what is not finished; _PrunedError once Optuna says so."""
        if self.reported and self.trial.should_prune():  # it was interrupted at that moment
            raise _PrunedError
        callbacks = [
            [callback(self.trial.number, experiment, str(self.point)), _WatchCallback(self, experiment.query_every)]
            for experiment in self.point.experiments
        ]
        results = run_all(self.point.experiments, config, callbacks)
        if all(result.summary is not None for result in results):
            self.update(may_prune=False)  # runs that were finished before called nothing
        return results

    def update(self, *, may_prune: bool = True) -> None:
        """Report what is new, query by query; _PrunedError where the trial should end."""
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


class _WatchCallback(Callback):
    """Has the trial watched where a query of a run may have come."""

    def __init__(self, watch: _TrialWatch, every: int) -> None:
        self.watch, self.every, self.queries = watch, every, 0

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        if position // self.every != self.queries:
            self.queries = position // self.every
            self.watch.update()


class _PrunedError(StoppedError):
    """Ends the runs of a trial; they keep their last checkpoints."""


class _UnfitError(StoppedError):
    """The values of a trial do not go together."""


class _NoLock:
    """Optuna's journal needs no lock of its own: the search holds one, and the system releases it."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def import_optuna() -> Any:
    """Optuna; InputError where it is not installed."""
    found = find_spec("optuna")
    if found is None or found.origin is None:
        raise InputError("A search needs optuna, which is not installed; pip install 'iblurry[tune]'.")
    import optuna

    return optuna


def _make_pruner(optuna: Any, name: str, warmup: int) -> Any:
    if name not in PRUNERS:
        raise UnknownNameError("pruner", name, PRUNERS)
    if name == "none":
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=warmup)


def _cut_torn_line(path: Path) -> None:
    """Take away a last line without its end, which a killed process left; Optuna would not read on."""
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        os.truncate(path, whole)
