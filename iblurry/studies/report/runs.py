"""The runs of a report: found in a folder, read, and put together by configuration and row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Start
from iblurry.experiment.result import read_result
from iblurry.studies.collect import CollectedRun
from iblurry.studies.describe import group_runs
from iblurry.studies.paper import Configuration, configuration_of, paper_configurations
from iblurry.studies.study import SEEDS, Study

FEW = 6  # names of what was found instead of runs


@dataclass(frozen=True)
class ReportRow:
    """Runs that differ only in their seed, in the order of their seeds.

    Parameters
    ----------
    name : str
        The method, and what sets it apart from other rows.
    finished, unfinished : tuple of CollectedRun
        Unfinished ones as far as they got; those not begun have no records.
    """

    name: str
    finished: tuple[CollectedRun, ...]
    unfinished: tuple[CollectedRun, ...]

    @property
    def runs(self) -> tuple[CollectedRun, ...]:
        return self.finished + self.unfinished

    @property
    def experiments(self) -> list[Experiment]:
        return [run.result.experiment for run in self.runs]


@dataclass(frozen=True)
class ReportBlock:
    """One configuration of stream and memory, and its rows."""

    configuration: Configuration
    rows: tuple[ReportRow, ...]


def find_runs(place: Path) -> list[Path]:
    """The folders of runs in a folder of them, or of data sets of them; itself if it is one."""
    if not place.is_dir():
        raise InputError(f"There is no folder {place}; name one that `iblurry run` or `iblurry collect` wrote.")
    patterns = ("experiment.json", "*/experiment.json", "*/*/experiment.json")
    found = sorted({path.parent for pattern in patterns for path in place.glob(pattern)})
    if not found:
        raise InputError(
            f"{place} holds no runs, only {_listed(place)}; name the folder that `iblurry run` wrote to (usually runs) "
            "or that of `iblurry collect` (usually results)."
        )
    return found


def read_runs(folders: Iterable[Path]) -> list[CollectedRun]:
    """What they hold, finished or not; an environment that was not kept is empty."""
    places = [RunFolder(folder) for folder in folders]
    return [CollectedRun(read_result(place), place.environment() or {}) for place in places]


def group_blocks(runs: Sequence[CollectedRun]) -> list[ReportBlock]:
    """In the paper's order, then by name; rows by name too."""
    found: dict[Configuration, list[CollectedRun]] = {}
    for run in runs:
        found.setdefault(configuration_of(run.result.experiment), []).append(run)
    known = [where for where in paper_configurations() if where in found]
    order = dict.fromkeys([*known, *sorted(found, key=str)])
    return [ReportBlock(where, _rows(found[where])) for where in order]


def select_study(study: Study, runs: Sequence[CollectedRun]) -> tuple[list[CollectedRun], list[Experiment]]:
    """The runs that belong to a study, and what it plans on their data, at their scale, that was not begun."""
    streams = dict.fromkeys(map(_stream, (run.result.experiment for run in runs)))
    seeds = sorted({*SEEDS, *(run.result.experiment.seed for run in runs)})
    planned = {
        run.experiment.digest: run.experiment
        for dataset, share in streams
        for run in study.plan(dataset, seeds=seeds, scale=share)
    }
    selected = [run for run in runs if run.result.experiment.digest in planned]
    if not selected:
        first, _ = next(iter(streams))
        raise InputError(
            f"None of the {len(runs)} runs belongs to the study {study.name}; run one of its rows, such as "
            f"`iblurry run {study.rows[-1]} --dataset {first}`, or leave --study out."
        )
    begun = {run.result.experiment.digest: _stream(run.result.experiment) for run in selected}
    missing = [one for digest, one in planned.items() if digest not in begun and _stream(one) in begun.values()]
    return selected, [one for one in missing if one.seed in SEEDS]


def _stream(experiment: Experiment) -> tuple[str, float]:
    return experiment.dataset, experiment.share


def stream_length(run: CollectedRun) -> int | None:
    """Samples of its whole stream; None before it was begun."""
    start = run.result.records[0] if run.result.records else None
    return start.samples if isinstance(start, Start) else None


def _rows(runs: Sequence[CollectedRun]) -> tuple[ReportRow, ...]:
    by_folder = {run.result.folder: run for run in runs}
    rows = []
    for name, group in group_runs([run.result for run in runs]).items():
        runs = sorted((by_folder[result.folder] for result in group), key=lambda run: run.result.experiment.seed)
        done = [run for run in runs if run.result.summary is not None]
        rows.append(ReportRow(name, tuple(done), tuple(run for run in runs if run not in done)))
    return tuple(sorted(rows, key=lambda row: row.name))


def _listed(place: Path) -> str:
    names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in place.iterdir())
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return f"{', '.join(names[:FEW])}{more}" if names else "nothing at all"
