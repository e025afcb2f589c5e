"""A forecast: what the runs of a study will compute, and how long they will take on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any, Literal

from iblurry.data.dataset import Dataset
from iblurry.errors import IblurryError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.launch.progress import duration
from iblurry.method import Method
from iblurry.studies.compute_estimate import (
    compute_estimate,
    query_flops,
    query_moments,
    size_of,
    training_flops,
)
from iblurry.studies.study import PlannedRun
from iblurry.studies.trial import Trial

Basis = Literal["finished", "timed", "compared"]  # runs of other seeds; a trial; the operations of the others


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """What a run will compute."""

    steps: float  # updates, or samples where a method takes none but those of refits
    moments: int  # at which it is asked
    training: float  # FLOP
    queries: float  # FLOP

    @property
    def flops(self) -> float:
        return self.training + self.queries


def run_cost(experiment: Experiment, data: Dataset) -> RunCost:
    """What a run on these data will compute."""
    order, of = experiment.order(data), size_of(data)
    cut = replace(experiment, samples=len(order))  # a list of samples may be shorter than the data
    updates = compute_estimate(cut, of).earned * float(experiment.method.pace.updates_per_sample)
    return RunCost(
        steps=updates or len(order),
        moments=len(set(query_moments(experiment, order).tolist())),
        training=training_flops(cut, of),
        queries=query_flops(experiment, data),
    )


@dataclass(frozen=True, kw_only=True)
class ExpectedRun:
    """A run to do, and how long it will keep a place busy."""

    planned: PlannedRun
    cost: RunCost
    seconds: float | None = None  # None: nothing is known
    basis: Basis | None = None

    @property
    def name(self) -> str:
        return self.planned.experiment.name


class Forecast:
    """Time for runs to do at so many places; corrected by every run that ends.

    Parameters
    ----------
    runs : sequence of ExpectedRun
        Those to do.
    places : int
        Processes or GPUs that work at a time. Runs packed on one GPU share a place.
    """

    def __init__(self, runs: Sequence[ExpectedRun], places: int) -> None:
        self.runs, self.places = runs, places
        self._by_name = {one.name: one for one in runs}
        self._taken: dict[str, list[float]] = {}  # expected and true seconds of ended runs, by row

    def left(self, done: Mapping[str, float] | None = None) -> float | None:
        """Seconds to go, where such shares of runs are done, by name; None: not known.

        Runs of a row are corrected by those of it that have ended, other rows by all that have.
        """
        if any(one.seconds is None for one in self.runs):
            return None
        shares = done or {}
        busy = [(one.seconds or 0.0) * self._correction(one) * (1 - shares.get(one.name, 0.0)) for one in self.runs]
        return max([sum(busy) / self.places, *busy]) if busy else 0.0

    def learn(self, name: str, seconds: float) -> None:
        """A run has kept its place busy for so long."""
        one = self._by_name.get(name)
        if one is not None and one.seconds:
            sums = self._taken.setdefault(one.planned.row, [0.0, 0.0])
            sums[0] += one.seconds
            sums[1] += seconds

    def _correction(self, one: ExpectedRun) -> float:
        rows = self._taken.values()
        expected, taken = self._taken.get(one.planned.row) or (sum(e for e, _ in rows), sum(t for _, t in rows))
        return taken / expected if expected else 1.0

    def describe(self) -> str:
        """How long, and by what that is known."""
        left = self.left()
        if left is None:
            return "How long it takes is not known: no finished runs on this device, and no trial of a method."
        rows = {basis: len({one.planned.row for one in self.runs if one.basis == basis}) for basis in _WORDS}
        known = [_WORDS[basis].format(f"{n} method{'s' * (n > 1)}") for basis, n in rows.items() if n]
        return f"About {duration(left)}, {self.places} at a time, from {' and '.join(known)}."


_WORDS: dict[Basis, str] = {
    "finished": "finished runs of {} on this device",
    "timed": "a timed moment of {}",
    "compared": "the operations of {}",
}


def expect_runs(
    planned: Sequence[PlannedRun],
    costs: Mapping[str, RunCost],
    finished: Mapping[str, Sequence[float]],
    trials: Mapping[tuple[Method, str], Trial | None],
) -> list[ExpectedRun]:
    """How long each run takes: as runs of other seeds did, else by its method's trial, else by its operations.

    `costs` are by the experiment's name, `finished` by `seedless` (seconds), `trials` by `trial_key`.
    """
    runs = []
    for one in planned:
        new = ExpectedRun(planned=one, cost=costs[one.experiment.name])
        if taken := finished.get(seedless(one.experiment)):
            new = replace(new, seconds=sum(taken) / len(taken), basis="finished")
        elif (trial := trials.get(trial_key(one.experiment))) is not None:
            new = replace(new, seconds=trial.run_seconds(**asdict(new.cost)), basis="timed")
        runs.append(new)
    known = [one for one in runs if one.seconds is not None]
    if not known:
        return runs
    rate = sum(one.seconds or 0.0 for one in known) / sum(one.cost.flops for one in known)
    return [
        one if one.seconds is not None else replace(one, seconds=rate * one.cost.flops, basis="compared")
        for one in runs
    ]


def finished_seconds(
    experiments: Sequence[Experiment], folders: Sequence[Path], place: Mapping[str, Any] | None
) -> dict[str, list[float]]:
    """How long finished runs of these experiments, whatever the seed, kept such a place busy; by `seedless`.

    A run in a pack has the seconds of the runs beside it in its own, so it counts with its share of them.
    """
    wanted, found = {seedless(one) for one in experiments}, dict[str, list[float]]()
    patterns = {f"{escape(one.name.rsplit('-', 2)[0])}-*" for one in experiments}
    for path in sorted({path for folder in folders for pattern in patterns for path in folder.glob(pattern)}):
        with suppress(IblurryError):  # another's, or damaged: nothing is known by it
            run = RunFolder(path)
            summary, about = run.summary(), run.environment() or {}
            if summary is None or "stopped" in summary or not _is_alike(about, place):
                continue
            if (key := seedless(run.experiment())) in wanted:
                found.setdefault(key, []).append(about["seconds"] / about.get("pack", 1))
    return found


def _is_alike(about: Mapping[str, Any], place: Mapping[str, Any] | None) -> bool:
    """Whether runs there take as long: on a CPU machine and threads count, on a GPU the pack must be known."""
    if place is None:
        return False
    on_cpu = place["device"] == "cpu"
    names = ("device", "precision", *(("machine", "threads") if on_cpu else ()))
    return all(about.get(name) == place[name] for name in names) and "seconds" in about and (on_cpu or "pack" in about)


def seedless(experiment: Experiment) -> str:
    """The same for all seeds of an experiment."""
    return replace(experiment, seed=0).digest


def trial_key(experiment: Experiment) -> tuple[Method, str]:
    """One trial is for all experiments with the same of this."""
    return experiment.method, experiment.network
