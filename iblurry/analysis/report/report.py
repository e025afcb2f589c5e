"""What a report shows: runs, put together by configuration and row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iblurry.analysis.report.html import Html, row_head
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Start
from iblurry.experiment.result import Result


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
    about: str  # the configuration in words, the data set first
    rows: list[ReportRow]
    beside_paper: Html | None = None  # the numbers of a paper for it, beside ours

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.rows]

    @property
    def runs(self) -> list[Result]:
        return [run for row in self.rows for run in row.runs]

    def row_head(self, name: str) -> Html:
        """Make the first cell of a row, which is sorted by its place."""
        return row_head(name, self.names.index(name))

    def lacking_seeds(self, row: ReportRow) -> list[int]:
        """Seeds that other rows of the configuration have and this one has not."""
        return sorted({run.experiment.seed for run in self.runs} - {one.seed for one in row.experiments})


@dataclass(frozen=True)
class Report:
    """Everything the page shows."""

    title: str
    question: str | None  # that the runs are to answer
    folder: Path  # the page names run folders as they are inside it
    runs: list[Result]  # all of them, finished or not
    blocks: list[ReportBlock]  # the paper's configurations in its order, then others by name
    missing: list[list[Experiment]]  # what the study plans and nobody began, row by row
    study: str | None = None  # its name
    note: str = ""  # where the paper's numbers come from

    @property
    def finished(self) -> int:
        """Number of finished runs."""
        return sum(run.summary is not None for run in self.runs)


def stream_length(run: Result) -> int:
    """Samples of its whole stream; 0 before it was begun."""
    return next((record.samples for record in run.records if isinstance(record, Start)), 0)
