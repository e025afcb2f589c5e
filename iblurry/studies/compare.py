"""Our runs beside the paper's numbers, row by row, with a verdict by a rule that is stated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iblurry.experiment.edit import edit
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.settings import plain
from iblurry.methods import METHODS
from iblurry.studies.collect import Finished
from iblurry.studies.paper import COUNTERPARTS, Configuration, Number, configurations, paper_number, paper_rows
from iblurry.studies.run_rows import departures, grouped
from iblurry.studies.run_table import Row, Spread, rows

FIELDS = {"A_AUC": "a_auc", "A_avg": "a_avg", "F_last": "f_last", "final_accuracy": "a_last"}  # of a Row
MAIN = configurations()[0]  # Table 1 on CIFAR-10
TARGETS = {"clib": 1.5, "er": 2.5}  # points of A_AUC and A_avg there that this project set itself
SEEDS = 3  # of the paper
NOT_RUN, NOT_PAPER = "not run yet", "not in the paper"


@dataclass(frozen=True)
class Comparison:
    """One method, one metric."""

    method: str | None  # our name for the paper's row; None where our row is none of its
    row: str | None  # our row; None where there is no run
    n: int
    paper: Number | None
    ours: Spread | None
    verdict: str

    @property
    def difference(self) -> float | None:
        return self.ours.mean - self.paper.mean if self.ours and self.paper else None

    @property
    def misses(self) -> bool:
        return self.verdict.startswith(("above", "below")) or "beyond" in self.verdict


@dataclass(frozen=True)
class Block:
    """One configuration: our runs, row by row, and the comparisons, metric by metric."""

    configuration: Configuration
    groups: dict[str, list[Finished]]
    comparisons: dict[str, list[Comparison]]

    @property
    def table(self) -> list[Row]:
        """All four numbers of our runs."""
        return rows({name: [one.result.metrics for one in group] for name, group in self.groups.items()})


def compare(runs: Sequence[Finished]) -> list[Block]:
    """Table 1 on CIFAR-10 first, then every other configuration that has runs, in the paper's order."""
    found: dict[Configuration, list[Finished]] = {}
    for run in runs:
        found.setdefault(configuration(run.result.experiment), []).append(run)
    order = [MAIN, *(one for one in configurations()[1:] if one in found)]
    return [_block(one, found.get(one, [])) for one in dict.fromkeys([*order, *sorted(found, key=str)])]


def configuration(experiment: Experiment) -> Configuration:
    """Where an experiment would stand in the tables."""
    where = plain(experiment.dataset)
    return Configuration(where, experiment.disjoint, experiment.blur, experiment.memory, experiment.tasks)


def counterpart(experiment: Experiment) -> str | None:
    """The name in COUNTERPARTS that an experiment is exactly, its stream, memory and seed aside; None: it departs."""
    for name in COUNTERPARTS:
        plain, *changes = name.split()
        if experiment.method.name.removesuffix("-released") == plain:
            usual = _usual(experiment)
            for change in changes:
                usual = edit(usual, change)
            if usual.digest == experiment.digest:
                return name
    return None


def verdict(paper: Number, ours: Spread, n: int, *, target: float | None = None) -> str:
    """In words; "beyond", "above" and "below" are misses.

    Within the target, if there is one; else within the spreads, if the means are no further apart than both spreads
    (one sample standard deviation each) together; else above or below.
    """
    if paper.warning is not None:
        return "not judged: see the warning"
    apart, room = ours.mean - paper.mean, (paper.std or 0) + (ours.std or 0)
    if target is not None and abs(apart) <= target:
        words = f"within {target:g}"
    elif abs(apart) <= room:
        words = "within the spreads" + (f", beyond {target:g}" if target is not None else "")
    else:
        words = "above" if apart > 0 else "below"
    return words if n >= SEEDS else f"{words} (provisional)"


def _block(where: Configuration, runs: Sequence[Finished]) -> Block:
    by_folder = {run.result.folder: run for run in runs}
    grouping = grouped([run.result for run in runs])
    groups = {name: [by_folder[result.folder] for result in group] for name, group in grouping.items()}
    block = Block(where, groups, {})
    for metric in FIELDS:
        block.comparisons[metric] = _comparisons(metric, block)
    return block


def _comparisons(metric: str, block: Block) -> list[Comparison]:
    """The paper's rows in its order, each with our runs of it; then what only we have."""
    where, first = block.configuration, {name: group[0].result.experiment for name, group in block.groups.items()}
    is_row = {name: counterpart(experiment) for name, experiment in first.items()}
    table = {row.method: (row, getattr(row, FIELDS[metric])) for row in block.table}
    found, own = [], []
    for method in dict.fromkeys([*paper_rows(where), *filter(None, is_row.values())]):
        number = paper_number(method, metric, where)
        target = TARGETS.get(method) if where == MAIN and metric in ("A_AUC", "A_avg") else None
        mine = [table[name] for name in table if is_row[name] == method]
        if number is not None and not mine:
            found.append(Comparison(method, None, 0, number, None, NOT_RUN))
        for row, ours in mine:
            if number is not None and ours is not None:
                words = verdict(number, ours, row.n, target=target)
                found.append(Comparison(method, row.method, row.n, number, ours, words))
            elif ours is not None:
                own.append(Comparison(method, row.method, row.n, None, ours, NOT_PAPER))
    for name, (row, ours) in table.items():
        if is_row[name] is None and ours is not None:
            own.append(Comparison(None, name, row.n, None, ours, _why_not(first[name])))
    return found + own if metric != "final_accuracy" else found  # the paper has that for joint training alone


def _why_not(experiment: Experiment) -> str:
    """Why a run has no counterpart: the paper has no such method, or this is not quite that method."""
    if experiment.method.name.removesuffix("-released") not in METHODS:
        return NOT_PAPER
    changes = departures(experiment, _usual(experiment))
    return f"{NOT_PAPER}: " + " ".join(f"{path}={value}" for path, value in changes.items()) if changes else NOT_PAPER


def _usual(experiment: Experiment) -> Experiment:
    """The method as it comes, on the same stream with the same memory."""
    same = ("disjoint", "blur", "memory", "tasks", "mode", "published", "seed")
    stream = {field: getattr(experiment, field) for field in same}
    return Experiment.of(experiment.method.name, experiment.dataset, **stream)
