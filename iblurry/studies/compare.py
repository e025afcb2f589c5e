"""Our runs compared with the paper's numbers, row by row, with a verdict by a rule that is stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from iblurry.analysis.describe import find_departures, group_runs
from iblurry.analysis.metrics import NOTHING, MeanStd, format_value
from iblurry.analysis.table import Table, tabulate_runs
from iblurry.analysis.verdict import ABOVE, BELOW, NOT_JUDGED, PAPER_SEEDS, PaperNumber, judge, standard_error
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.result import Result
from iblurry.methods import METHODS
from iblurry.studies.paper import (
    PAPER_METRICS,
    Configuration,
    configuration_of,
    default_experiment,
    find_counterpart,
    paper_configurations,
    paper_number,
    paper_rows,
)

MAIN = paper_configurations()[0]  # Table 1 on CIFAR-10
NOT_RUN, NOT_PAPER, PROVISIONAL = "not run yet", "not in the paper", "(provisional)"
ELSEWHERE = f"{NOT_JUDGED}: the published orders are"


@dataclass(frozen=True)
class Comparison:
    """One method, one metric: the paper's number and ours, percent."""

    method: str | None  # our name for the paper's row; None where our row is none of its
    row: str | None  # our row; None where there is no run
    n: int  # seeds of ours
    paper: PaperNumber | None
    ours: MeanStd | None
    verdict: str  # how they agree, in words

    @property
    def difference(self) -> float | None:
        return self.ours.mean - self.paper.mean if self.ours and self.paper else None

    @property
    def standard_error(self) -> float | None:
        """Standard error of the difference."""
        return standard_error(self.paper, self.ours, self.n) if self.ours and self.paper else None

    @property
    def misses(self) -> bool:
        return self.verdict.startswith((ABOVE, BELOW))

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """The paper's number, ours, the difference and its standard error, as tables print them.

        ⚠ marks a number that is warned of.
        """
        warned = " ⚠" if self.paper and self.paper.warning else ""
        difference = NOTHING if self.difference is None else f"{self.difference:+z.2f}"
        error = NOTHING if self.standard_error is None else f"{self.standard_error:.2f}"
        return format_value(self.paper) + warned, format_value(self.ours), difference, error


@dataclass(frozen=True)
class ComparisonBlock:
    """One configuration (a column of the paper's tables): our finished runs and how they compare."""

    configuration: Configuration
    groups: Mapping[str, Sequence[Result]]  # by the row's name, seed by seed
    preferred: ComparisonBlock | None = None  # the same on the paper's own orders: its rows are judged, not these

    @cached_property
    def table(self) -> Table:
        """All four metrics of our runs."""
        return tabulate_runs(self.groups)

    @cached_property
    def comparisons(self) -> dict[str, list[Comparison]]:
        """Comparisons by metric of the paper: its rows in its order, then rows that only we have."""
        return {metric: _compare_metric(metric, self) for metric in PAPER_METRICS}


def compare_with_paper(runs: Sequence[Result]) -> list[ComparisonBlock]:
    """Table 1 on CIFAR-10 first, then every other configuration that has runs, in the paper's order."""
    groups = group_by_configuration(runs)
    if MAIN not in {where.column for where in groups}:
        groups = {MAIN: {}, **groups}
    blocks: dict[Configuration, ComparisonBlock] = {}
    for where, rows in groups.items():
        blocks[where] = ComparisonBlock(where, rows, blocks.get(replace(where, published=True)))
    return list(blocks.values())


def group_by_configuration(runs: Sequence[Result]) -> dict[Configuration, dict[str, list[Result]]]:
    """Runs by configuration, in the paper's order and then by name, and by row; published orders before drawn ones."""
    found: dict[Configuration, list[Result]] = {}
    for run in runs:
        found.setdefault(configuration_of(run.experiment), []).append(run)
    columns = dict.fromkeys([*paper_configurations(), *(where.column for where in sorted(found, key=str))])
    wheres = [replace(column, published=published) for column in columns for published in (True, False)]
    return {where: group_runs(found[where]) for where in wheres if where in found}


def find_warnings(comparisons: Sequence[Comparison]) -> list[str]:
    """Why numbers of the paper are not judged, each reason once."""
    return list(dict.fromkeys(one.paper.warning for one in comparisons if one.paper and one.paper.warning))


def describe_verdict(paper: PaperNumber, ours: MeanStd, n: int) -> str:
    """The verdict, why there is none, and whether it rests on fewer seeds than the paper has."""
    word = judge(paper, ours, n)
    if word == NOT_JUDGED:
        return f"{word}: {'see the warning' if paper.warning else 'no spread'}"
    return word if n >= PAPER_SEEDS else f"{word} {PROVISIONAL}"


def _compare_metric(metric: str, block: ComparisonBlock) -> list[Comparison]:
    """The paper's rows in its order, each with our runs of it; then what only we have."""
    where = block.configuration
    first = {name: group[0].experiment for name, group in block.groups.items()}
    is_row = {name: find_counterpart(experiment) for name, experiment in first.items()}
    cells = {row: (len(group), block.table.ours(row, "", PAPER_METRICS[metric])) for row, group in block.groups.items()}
    found, own = [], []
    for method in dict.fromkeys([*paper_rows(where), *filter(None, is_row.values())]):
        number = paper_number(method, metric, where)
        rows = [name for name in cells if is_row[name] == method]
        if number is not None and not rows and block.preferred is None:
            found.append(Comparison(method, None, 0, number, None, NOT_RUN))
        for row in rows:
            n, ours = cells[row]
            if number is not None and ours is not None:
                is_judged = block.preferred is None or row not in block.preferred.groups
                verdict = describe_verdict(number, ours, n) if is_judged else ELSEWHERE
                found.append(Comparison(method, row, n, number, ours, verdict))
            elif ours is not None:
                own.append(Comparison(method, row, n, None, ours, NOT_PAPER))
    for row, (n, ours) in cells.items():
        if is_row[row] is None and ours is not None:
            own.append(Comparison(None, row, n, None, ours, _why_not(first[row])))
    return found + own if metric != "final_accuracy" else found  # the paper has that for joint training alone


def _why_not(experiment: Experiment) -> str:
    """Why a run has no counterpart: the paper has no such method, or this is not quite that method."""
    if experiment.method.name.removesuffix("-released") not in METHODS:
        return NOT_PAPER
    changes = find_departures(experiment, default_experiment(experiment))
    return f"{NOT_PAPER}: " + " ".join(f"{path}={value}" for path, value in changes.items()) if changes else NOT_PAPER
