"""What the report shows: the runs of a folder, put together by configuration and row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Start
from iblurry.experiment.result import Result, read_result
from iblurry.studies.compare import ComparisonBlock, group_by_configuration
from iblurry.studies.paper import Configuration
from iblurry.studies.report.html import Html, tag
from iblurry.studies.study import SEEDS, Study

FEW = 6  # names of what was found instead of runs


@dataclass(frozen=True)
class ReportRow:
    """Runs that differ only in their seed, in the order of their seeds."""

    name: str  # the method, and what sets it apart from other rows
    finished: list[Result]
    unfinished: list[Result]  # as far as they got; those not begun have no records

    @property
    def runs(self) -> list[Result]:
        return self.finished + self.unfinished

    @property
    def experiments(self) -> list[Experiment]:
        return [run.experiment for run in self.runs]


@dataclass(frozen=True)
class ReportBlock:
    """One configuration of stream and memory."""

    id: str  # its anchor on the page
    configuration: Configuration
    rows: list[ReportRow]

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.rows]

    @property
    def runs(self) -> list[Result]:
        return [run for row in self.rows for run in row.runs]

    @cached_property
    def finished(self) -> ComparisonBlock:
        """The finished runs, beside the paper's numbers."""
        return ComparisonBlock(self.configuration, {row.name: row.finished for row in self.rows if row.finished})

    def row_head(self, name: str) -> Html:
        """Make the first cell of a row, which is sorted by its place."""
        return tag("th", name, scope="row", data_value=self.names.index(name))

    def lacking_seeds(self, row: ReportRow) -> list[int]:
        """Seeds that other rows of the configuration have and this one has not."""
        return sorted({run.experiment.seed for run in self.runs} - {one.seed for one in row.experiments})


@dataclass(frozen=True)
class Report:
    """Everything the page shows."""

    title: str
    folder: Path  # the page names run folders as they are inside it
    study: Study | None  # whose runs these are
    runs: list[Result]  # all of them, finished or not
    blocks: list[ReportBlock]  # the paper's configurations in its order, then others by name
    missing: list[list[Experiment]]  # what the study plans and nobody began, row by row

    @property
    def finished(self) -> int:
        """Number of finished runs."""
        return sum(run.summary is not None for run in self.runs)


def report_data(place: Path, *, title: str | None = None, study: Study | None = None) -> Report:
    """Read the runs of a report.

    Parameters
    ----------
    place : Path
        A folder of runs, or of data sets of them.
    title : str, optional
        The page's heading; the study's, or the data sets, unless given.
    study : Study, optional
        Only the runs of this study, and what it still lacks.
    """
    runs = [read_result(RunFolder(folder)) for folder in find_runs(place)]
    missing: list[Experiment] = []
    if study is not None:
        runs, missing = select_study(study, runs)
    blocks = [
        ReportBlock(f"c{number}", where, sorted(map(_row, groups, groups.values()), key=lambda row: row.name))
        for number, (where, groups) in enumerate(group_by_configuration(runs).items(), start=1)
    ]
    if title is None:
        datasets = list(dict.fromkeys(block.configuration.dataset for block in blocks))
        title = study.title if study else f"Continual learning on {_join_words(datasets)}"
    alike = [list(group) for _, group in groupby(missing, key=lambda planned: replace(planned, seed=0).digest)]
    return Report(title, place, study, runs, blocks, alike)


def find_runs(place: Path) -> list[Path]:
    """The folders of runs in a folder of them, or of data sets of them; itself if it is one."""
    if not place.is_dir():
        raise InputError(f"There is no folder {place}; name one that `iblurry run` or `iblurry dev collect` wrote.")
    patterns = ("experiment.json", "*/experiment.json", "*/*/experiment.json")
    found = sorted({path.parent for pattern in patterns for path in place.glob(pattern)})
    if not found:
        names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in place.iterdir())
        more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
        listed = f"{', '.join(names[:FEW])}{more}" if names else "nothing at all"
        raise InputError(
            f"{place} holds no runs, only {listed}; name the folder that `iblurry run` wrote to (usually runs) or that "
            "of `iblurry dev collect` (usually results)."
        )
    return found


def select_study(study: Study, runs: Sequence[Result]) -> tuple[list[Result], list[Experiment]]:
    """The runs that belong to a study, and what it plans on their data, at their scale, that was not begun."""
    streams = dict.fromkeys((run.experiment.dataset, run.experiment.share) for run in runs)
    seeds = sorted({*SEEDS, *(run.experiment.seed for run in runs)})
    planned = {
        stream: {run.experiment.digest: run.experiment for run in study.plan(stream[0], seeds=seeds, scale=stream[1])}
        for stream in streams
    }
    known = {digest for experiments in planned.values() for digest in experiments}
    selected = [run for run in runs if run.experiment.digest in known]
    if not selected:
        raise InputError(
            f"None of the {len(runs)} runs belongs to the study {study.name}; run one of its rows, such as "
            f"`iblurry run {study.rows[-1]} --dataset {next(iter(streams))[0]}`, or leave --study out."
        )
    begun = {run.experiment.digest for run in selected}
    missing = [
        experiment
        for experiments in planned.values()
        if begun & experiments.keys()
        for digest, experiment in experiments.items()
        if digest not in begun and experiment.seed in SEEDS
    ]
    return selected, missing


def stream_length(run: Result) -> int:
    """Samples of its whole stream; 0 before it was begun."""
    return next((record.samples for record in run.records if isinstance(record, Start)), 0)


def _row(name: str, runs: Sequence[Result]) -> ReportRow:
    runs = sorted(runs, key=lambda run: run.experiment.seed)
    return ReportRow(
        name, [run for run in runs if run.summary is not None], [run for run in runs if run.summary is None]
    )


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(", ".join(words).rsplit(", ", 1)) if len(words) < 4 else f"{len(words)} data sets"
