"""What a study's table says, line by line and note by note, for the formats that people read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from iblurry.experiment.metrics import NO_BOUNDARIES, has_boundaries
from iblurry.studies.paper import PaperNumber, load_paper
from iblurry.studies.significance import PairedComparison
from iblurry.studies.tables.table import (
    MeanStd,
    ResultTable,
    StudyTable,
    TableCell,
    TableMetric,
    count_decimals,
    format_number,
)
from iblurry.studies.verdict import RULE

OURS, PAPER, DIFFERENCE = "ours", "paper", "difference"
NOTHING = "–"


class TableBlock(NamedTuple):
    """A grid of its own: one for all metrics, or one for each where settings are columns."""

    title: str | None
    headings: list[str]
    columns: list[tuple[str, TableMetric]]


class TableLine(NamedTuple):
    """What we have in a row, or the paper, or how they differ."""

    row: str
    kind: str  # OURS, PAPER or DIFFERENCE
    cells: list[TableCell]


def table_title(table: StudyTable) -> str:
    printed_in = f" ({', '.join(table.study.shows)} of the paper)" if table.study.shows else ""
    return f"{table.study.title}{printed_in}: {table.settings}"


def split_blocks(table: StudyTable) -> list[TableBlock]:
    if len(table.columns) == 1:
        (column,) = table.columns
        return [TableBlock(column or None, [metric.heading for metric in table.metrics], list(table.headings()))]
    return [
        TableBlock(metric.heading, list(table.columns), [(column, metric) for column in table.columns])
        for metric in table.metrics
    ]


def table_lines(table: StudyTable, columns: Sequence[tuple[str, TableMetric]]) -> Iterator[TableLine]:
    """Ours always; the paper's and the difference where there is one."""
    for row in table.rows:
        cells = [table.cells[row, column, metric.name] for column, metric in columns]
        yield TableLine(row, OURS, cells)
        if any(cell.paper for cell in cells):
            yield TableLine(row, PAPER, cells)
        if any(cell.difference is not None for cell in cells):
            yield TableLine(row, DIFFERENCE, cells)


def has_paper(table: StudyTable) -> bool:
    """Whether the lines are of several kinds."""
    return any(cell.paper for cell in table.cells.values())


def has_best(table: ResultTable) -> bool:
    """Whether some mean is the best of its column, and so in bold where a form has it."""
    return any(map(table.is_best, table.cells.values()))


def cell_text(cell: TableCell, kind: str) -> str:
    """70.26 ± 1.28 (3), or +0.64 agrees."""
    if kind == DIFFERENCE:
        return NOTHING if cell.difference is None else f"{cell.difference:+z.{cell.metric.digits}f} {cell.verdict}"
    number = cell.ours if kind == OURS else cell.paper
    if number is None:
        return NOTHING
    mark = f" ({len(cell.runs)})" if kind == OURS else " ⚠" if cell.paper and cell.paper.warning else ""
    return " ± ".join(format_mean_std(cell.metric, number)) + mark


def own_text(cell: TableCell) -> str:
    """70.26 ± 1.28, in the metric's unit."""
    return NOTHING if cell.ours is None else " ± ".join(format_mean_std(cell.metric, cell.ours))


def format_value(number: MeanStd | PaperNumber | None) -> str:
    """70.26 ± 1.28, in percent."""
    return NOTHING if number is None else str(MeanStd(number.mean, number.std))


def format_mean_std(metric: TableMetric, number: MeanStd | PaperNumber) -> list[str]:
    """The mean and, if there is one, the spread, to the same place behind the point."""
    digits = count_decimals(number.mean) if metric.digits is None else metric.digits
    return [format_number(value, digits) for value in (number.mean, number.std) if value is not None]


def table_notes(table: StudyTable, *, bold: bool = True) -> list[str]:
    """What the numbers are, and by which rule they are judged; `bold` says whether the form can show the best in it."""
    counts = {len(cell.runs) for cell in table.cells.values() if cell.ours}
    over = "one seed each" if counts == {1} else "mean ± sample standard deviation (n - 1) over (n) seeds"
    best = "; the best of ours in bold" if bold and has_best(table) else ""
    notes = [f"{describe_units(table, over)}{best}."] if counts else []
    if any(cell.verdict for cell in table.cells.values()):
        notes.append(f"Difference: ours minus the paper's; {RULE}.")
    notes += describe_orders(table) + describe_runs(table)
    if has_paper(table):
        notes.append(f"The paper's numbers: {load_paper()['units']}.")
    return notes + [f"⚠ {warning}." for warning in paper_warnings(table)]


def describe_orders(table: StudyTable) -> list[str]:
    """A sentence on the rows whose runs are on other orders than the study's command draws, if any."""
    cells = [cell for cell in table.cells.values() if cell.metric is table.metrics[0] and cell.runs]
    titles: dict[str, list[str]] = {}
    for cell in cells:
        if (cell.row, cell.column) in table.other_orders:
            title = next(iter(cell.runs.values())).experiment.stream.title
            titles.setdefault(title, []).append(" ".join(filter(None, [cell.row, cell.column])))
    command = replace(table.selection, out=None).command()
    which = {title: "All rows" if len(rows) == len(cells) else ", ".join(rows) for title, rows in titles.items()}
    return [
        f"{rows}: our runs are on the orders of {title}; `{command}` draws others." for title, rows in which.items()
    ]


PRETRAINED = "With a pre-trained body, which may have seen these classes, so not comparable with the others:"


def describe_runs(table: ResultTable) -> list[str]:
    """Sentences on runs with pre-trained bodies, on those that a callback ended before their stream, and on those
    without task boundaries, if any.
    """
    said = [
        f"{name} at sample {run.stopped.at:,} ({run.stopped.reason})"
        for name, run in table.stopped().items()
        if run.stopped
    ]
    trained = {cell.row: None for cell in table.cells.values() for run in cell.runs.values() if run.pretrained}
    notes = [f"{PRETRAINED} {', '.join(trained)}."] if trained else []
    notes += [f"Stopped early, so only a part of the stream: {'; '.join(said)}."] if said else []
    at_ends = [cell for cell in table.cells.values() if cell.metric.name in ("a_avg", "f_last")]
    without = {cell.row: None for cell in at_ends for run in cell.runs.values() if not has_boundaries(run.records)}
    which = f": {', '.join(without)}" if len(without) < len(table.rows) else ", as in these runs"
    return notes + ([f"{NO_BOUNDARIES}{which}."] if without else [])


def describe_units(table: ResultTable, over: str) -> str:
    """Percent, mean over so many seeds; headings of other numbers name their units."""
    in_percent = {metric.unit == "percent" for metric in table.metrics}
    if in_percent == {True}:
        return f"Percent, {over}"
    sentence = over if in_percent == {False} else f"accuracy and forgetting in percent; {over}"
    return sentence[0].upper() + sentence[1:]


def paper_warnings(table: StudyTable) -> list[str]:
    papers = [cell.paper for cell in table.cells.values() if cell.paper]
    return list(dict.fromkeys(paper.warning for paper in papers if paper.warning))


def describe_missing(table: StudyTable) -> list[str]:
    """The runs that are not finished: a row that has none by its name, else its columns, else its seeds."""
    chosen = table.selection
    groups: dict[str, dict[str, list[int]]] = {}
    for planned in table.missing:
        groups.setdefault(planned.row, {}).setdefault(planned.column, []).append(planned.experiment.seed)
    words = []
    for row, lacks in groups.items():
        expected = chosen.study.seeds_of(row, chosen.seeds)
        whole = {column: tuple(seeds) == expected for column, seeds in lacks.items()}
        if len(lacks) == len(table.columns) and all(whole.values()):
            words.append(row)
            continue
        for column, seeds in lacks.items():
            which = "" if whole[column] else f"seed {', '.join(map(str, seeds))}"
            words.append(" ".join(word for word in (row, column, which) if word))
    return words


def missing_commands(table: StudyTable) -> list[str]:
    """What runs them, without rows that are whole: what is finished in another folder would be run again."""
    lacks = {planned.row for planned in table.missing}
    rows = tuple(row for row in table.rows if row in lacks)
    chosen = table.selection if rows == table.rows else replace(table.selection, rows=rows)
    return [chosen.command()] if table.missing else []


def group_pairs(table: StudyTable, pairs: Sequence[PairedComparison]) -> list[tuple[str, list[str]]]:
    """A heading for each column of numbers, and its pairs in words."""
    headings = {
        (column, metric.name): " ".join(word for word in (metric.heading, column) if word)
        for column, metric in table.headings()
    }
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(headings[pair.column, pair.metric], []).append(str(pair))
    return list(found.items())
