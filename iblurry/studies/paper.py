"""The numbers of the paper's tables, where an experiment of ours stands in them, and how our runs compare with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any

from iblurry.analysis.describe import DISPLAY_NAMES, JOINT, describe_held_out, find_departures, group_runs
from iblurry.analysis.table import (
    ABOVE,
    BELOW,
    NOT_JUDGED,
    NOTHING,
    PAPER_SEEDS,
    PaperNumber,
    Table,
    cell_number,
    format_value,
    tabulate_runs,
)
from iblurry.components.edit import edit
from iblurry.errors import UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.result import Result
from iblurry.experiment.settings import plain
from iblurry.methods import METHODS
from iblurry.streams.stream import IBlurry, Published

if TYPE_CHECKING:
    from pandas import DataFrame

PAPER_METRICS = {"A_AUC": "a_auc", "A_avg": "a_avg", "F_last": "f_last", "final_accuracy": "a_last"}  # ours: Metrics
NOT_RUN, NOT_PAPER, PROVISIONAL = "not run yet", "not in the paper", "(provisional)"
ELSEWHERE = f"{NOT_JUDGED}: the published orders are"
COUNTERPARTS = (
    {  # our name, with what --set changes: the paper's
        "er": "Baseline-ER",
        "er-constant": "Baseline-ER, constant rate",
    }
    | {
        name: DISPLAY_NAMES[name]
        for name in (
            *("ewc", "ewc schedule=Constant", "bic", "mir", "agem", "gss", "gdumb", "rm", "clib"),
            *("clib-reservoir", "clib-stream", "clib-exponential"),
        )
    }
    | {JOINT: "Joint Training"}
)


@dataclass(frozen=True)
class Configuration:
    """A stream and a memory: one column of the paper's tables, on its own orders or on orders drawn by its rule."""

    dataset: str  # without options
    disjoint: float  # N, percent
    blur: float  # M, percent; with N = 100 no class is blurry and M is taken to be 10, as the paper names it
    memory: int  # K, samples
    tasks: int
    other: str = ""  # the title of a stream that is not i-Blurry
    validate: float = (
        0.0  # share of the training images that were asked about; 0: the test images were, as in the paper
    )
    published: bool = False  # whether the orders are those of published split files, which made the paper's tables

    def __post_init__(self) -> None:
        if self.disjoint == 100:  # the published split files say m0
            object.__setattr__(self, "blur", 10)

    def __str__(self) -> str:
        stream = self.other or f"i-Blurry-{self.disjoint:g}-{self.blur:g}" + " (published)" * self.published
        words = [self.dataset, stream, f"{self.tasks} tasks", f"memory {self.memory:,}"]
        return ", ".join(words + ([describe_held_out(self.validate)] if self.validate else []))

    @property
    def column(self) -> Configuration:
        """This configuration whatever its orders, which the paper's tables do not tell apart."""
        return replace(self, published=False)


def paper_number(method: str, metric: str, configuration: Configuration) -> PaperNumber | None:
    """What the paper reports for a method of COUNTERPARTS (or its `-released` variant); None where it is nothing.

    Only the data set of the configuration counts for joint training.

    >>> paper_number("clib", "A_AUC", Configuration("cifar10", 50, 10, 500, 5)).mean
    70.26
    """
    if metric not in PAPER_METRICS:
        raise UnknownNameError("metric of the paper", metric, PAPER_METRICS)
    first, *changes = method.split()
    name = " ".join([first.removesuffix("-released"), *changes])
    where = configuration.dataset if name == JOINT else configuration.column
    return _numbers().get((where, COUNTERPARTS[name], metric)) if name in COUNTERPARTS else None


def paper_configurations() -> list[Configuration]:
    """Every column of the tables, in their order; the first of a data set is that of Table 1."""
    return list(dict.fromkeys(where for where, *_ in _numbers() if isinstance(where, Configuration)))


def paper_rows(configuration: Configuration) -> list[str]:
    """Our names of the methods the paper has numbers for there, in its order; joint training beside Table 1's."""
    first = next((other for other in paper_configurations() if other.dataset == configuration.dataset), None)
    column = configuration.column
    wheres = (column, configuration.dataset) if column == first else (column,)
    ours = {theirs: name for name, theirs in COUNTERPARTS.items()}
    return list(dict.fromkeys(ours[row] for where, row, _ in _numbers() if where in wheres))


def configuration_of(experiment: Experiment) -> Configuration:
    """The column of the tables that an experiment belongs to, and whose orders it has."""
    dataset = plain(experiment.dataset)
    stream, memory, validate = experiment.stream, experiment.memory, experiment.validate
    if not isinstance(stream, IBlurry | Published):
        return Configuration(dataset, 0, 0, memory, getattr(stream, "tasks", 1), stream.title, validate)
    published = isinstance(stream, Published)
    return Configuration(
        dataset, stream.disjoint, stream.blur, memory, stream.tasks, validate=validate, published=published
    )


def find_counterpart(experiment: Experiment) -> str | None:
    """The name in COUNTERPARTS that an experiment is exactly, its stream, memory and seed aside; None: it departs."""
    for name in COUNTERPARTS:
        method, *changes = name.split()
        if experiment.method.name.removesuffix("-released") == method:
            default = edit(default_experiment(experiment), *changes)
            if default.digest == experiment.digest:
                return name
    return None


def default_experiment(experiment: Experiment) -> Experiment:
    """The same method with the default settings, on the same stream with the same memory and seed."""
    same: dict[str, Any] = {field: getattr(experiment, field) for field in ("stream", "memory", "seed")}
    return Experiment.of(experiment.method.name, experiment.dataset, **same)


def load_paper() -> dict[str, Any]:
    """The content of paper.json: citation, units, numbers, and where the paper's text contradicts its tables."""
    text = resources.files("iblurry.studies").joinpath("paper.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@dataclass(frozen=True)
class ComparisonBlock:
    """One configuration (a column of the paper's tables): our finished runs and how they compare."""

    configuration: Configuration
    groups: Mapping[str, Sequence[Result]]  # by the row's name, seed by seed
    preferred: ComparisonBlock | None = None  # the same on the paper's own orders: its rows are judged, not these

    @cached_property
    def counterparts(self) -> dict[str, str | None]:
        """Our name of the paper's row that each of our rows is; None for one that is none of its."""
        return {row: find_counterpart(group[0].experiment) for row, group in self.groups.items()}

    @cached_property
    def table(self) -> Table:
        """All four metrics of our runs, beside the paper's numbers."""
        paper = {
            (row, "", ours): number
            for row, method in self.counterparts.items()
            for metric, ours in PAPER_METRICS.items()
            if method and (number := paper_number(method, metric, self.configuration))
        }
        return tabulate_runs(self.groups, paper=paper)

    @cached_property
    def comparisons(self) -> DataFrame:
        """A line per number: by metric, the paper's rows in its order with our runs of each, then what only we have.

        Its columns: metric (as the paper calls it); method (our name for the paper's row; None where our row is none of
        its) and row (ours; None where there is no run); n (seeds of ours); paper (a PaperNumber), ours (a MeanStd),
        difference and its standard error, None where there is none; verdict (in words), and whether it is a miss.
        """
        import pandas as pd

        names = ["metric", "method", "row", "n", "paper", "ours", "difference", "standard_error", "verdict"]
        frame = pd.DataFrame(_compare(self), columns=names, dtype=object)
        frame = frame.where(frame.notna(), None)
        frame["misses"] = [verdict.startswith((ABOVE, BELOW)) for verdict in frame["verdict"]]
        return frame


def format_comparison(line: Any) -> tuple[str, str, str, str]:
    """The paper's number, ours, the difference and its standard error, as tables print a line of comparisons.

    ⚠ marks a number that is warned of.
    """
    warned = " ⚠" if line.paper and line.paper.warning else ""
    difference = NOTHING if line.difference is None else f"{line.difference:+z.2f}"
    error = NOTHING if line.standard_error is None else f"{line.standard_error:.2f}"
    return format_value(line.paper) + warned, format_value(line.ours), difference, error


def compare_with_paper(runs: Sequence[Result]) -> list[ComparisonBlock]:
    """Table 1 on CIFAR-10 first, then every other configuration that has runs, in the paper's order."""
    groups, main = group_by_configuration(runs), paper_configurations()[0]
    if main not in {where.column for where in groups}:
        groups = {main: {}, **groups}
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


def describe_verdict(verdict: str, paper: PaperNumber, n: int) -> str:
    """The verdict, why there is none, and whether it rests on fewer seeds than the paper has."""
    if verdict == NOT_JUDGED:
        return f"{verdict}: {'see the warning' if paper.warning else 'no spread'}"
    return verdict if n >= PAPER_SEEDS else f"{verdict} {PROVISIONAL}"


@cache
def _numbers() -> dict[tuple[Configuration | str, str, str], PaperNumber]:
    """Numbers by configuration (joint training: data set), the paper's row and metric."""
    found = {}
    for line in load_paper()["numbers"]:
        is_joint = line["N"] is None
        where = line["dataset"] if is_joint else Configuration(*(line[k] for k in ("dataset", "N", "M", "K", "tasks")))
        number = PaperNumber(line["mean"], line["std"], tuple(line["tables"]), line.get("warning"))
        found[where, line["method"], line["metric"]] = number
    return found


def _compare(block: ComparisonBlock) -> Iterator[tuple[Any, ...]]:
    """Lines of the comparisons, column by column."""
    where, cells = block.configuration, {cell.Index: cell for cell in block.table.cells.itertuples()}
    # at last what only we have
    methods = dict.fromkeys([*paper_rows(where), *filter(None, block.counterparts.values()), None])
    for metric, name in PAPER_METRICS.items():
        own = []
        for method in methods:
            rows = [row for row, counterpart in block.counterparts.items() if counterpart == method]
            number = paper_number(method, metric, where) if method else None
            if number is not None and not rows and block.preferred is None:
                yield metric, method, None, 0, number, None, None, None, NOT_RUN
            for row in rows:
                cell = cells[row, "", name]
                ours = cell_number(cell)
                line = (metric, method, row, cell.n, cell.paper, ours, cell.difference, cell.error)
                if ours is not None and cell.paper is None:
                    own.append((*line, NOT_PAPER if method else _why_not(block.groups[row][0].experiment)))
                elif ours is not None:
                    is_judged = block.preferred is None or row not in block.preferred.groups
                    yield *line, describe_verdict(cell.verdict, cell.paper, cell.n) if is_judged else ELSEWHERE
        if metric != "final_accuracy":  # the paper has that for joint training alone
            yield from own


def _why_not(experiment: Experiment) -> str:
    """Why a run has no counterpart: the paper has no such method, or this is not quite that method."""
    if experiment.method.name.removesuffix("-released") not in METHODS:
        return NOT_PAPER
    changes = find_departures(experiment, default_experiment(experiment))
    return f"{NOT_PAPER}: " + " ".join(f"{path}={value}" for path, value in changes.items()) if changes else NOT_PAPER
