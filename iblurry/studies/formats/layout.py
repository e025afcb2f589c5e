"""What the table says, line by line and note by note, for the formats that people read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from iblurry.studies.paper import Number, about
from iblurry.studies.run_table import Spread, behind, printed
from iblurry.studies.significance import Pair
from iblurry.studies.table import Cell, Measure, StudyTable

OURS, PAPER, DIFFERENCE = "ours", "paper", "difference"
NOTHING = "–"


class Block(NamedTuple):
    """A table of its own: one for all numbers, or one for each where settings are columns."""

    title: str | None
    headings: list[str]
    across: list[tuple[str, Measure]]


class Line(NamedTuple):
    """What we have in a row, or the paper, or how they differ."""

    row: str
    kind: str
    cells: list[Cell]


def title(table: StudyTable) -> str:
    printed_in = f" ({', '.join(table.study.shows)} of the paper)" if table.study.shows else ""
    return f"{table.study.title}{printed_in}: {table.settings}"


def blocks(table: StudyTable) -> list[Block]:
    if len(table.columns) == 1:
        (column,) = table.columns
        return [Block(column or None, [one.heading for one in table.measures], list(table.across()))]
    return [
        Block(measure.heading, list(table.columns), [(column, measure) for column in table.columns])
        for measure in table.measures
    ]


def lines(table: StudyTable, across: Sequence[tuple[str, Measure]]) -> Iterator[Line]:
    """Ours always; the paper's and the difference where there is one."""
    for row in table.rows:
        cells = [table.cells[row, column, measure.name] for column, measure in across]
        yield Line(row, OURS, cells)
        if any(cell.paper for cell in cells):
            yield Line(row, PAPER, cells)
        if any(cell.difference is not None for cell in cells):
            yield Line(row, DIFFERENCE, cells)


def has_paper(table: StudyTable) -> bool:
    """Whether the lines are of several kinds."""
    return any(cell.paper for cell in table.cells.values())


def text(cell: Cell, kind: str) -> str:
    """70.26 ± 1.28 (3), or +0.64 within."""
    if kind == DIFFERENCE:
        return (
            f"{cell.difference:+z.{cell.measure.digits}f} {cell.standing}" if cell.difference is not None else NOTHING
        )
    number = cell.ours if kind == OURS else cell.paper
    if number is None:
        return NOTHING
    return " ± ".join(figures(cell.measure, number)) + _mark(cell, kind)


def figures(measure: Measure, number: Spread | Number) -> list[str]:
    """The mean and, if there is one, the spread, to the same place behind the point."""
    digits = behind(number.mean) if measure.digits is None else measure.digits
    return [printed(value, digits) for value in (number.mean, number.std) if value is not None]


def _mark(cell: Cell, kind: str) -> str:
    if kind == OURS:
        return f" ({len(cell.runs)})"
    return " ⚠" if cell.paper and cell.paper.warning else ""


def notes(table: StudyTable) -> list[str]:
    """What the numbers are, and by which rule they are judged."""
    counts = {len(cell.runs) for cell in table.cells.values() if cell.ours}
    over = "one seed each" if counts == {1} else "mean ± sample standard deviation (n - 1) over (n) seeds"
    found = [f"{in_units(table, over)}; the best of ours in bold."] if counts else []
    if any(cell.standing for cell in table.cells.values()):
        found.append(
            "Difference: ours minus the paper's; within: our mean lies in the paper's mean ± its spread; else above or "
            "below; not judged: it prints no spread, or the number is warned of (⚠)."
        )
    if has_paper(table):
        found.append(f"The paper's numbers: {about()['units']}.")
    return found + [f"⚠ {warning}." for warning in warnings(table)]


def in_units(table: StudyTable, over: str) -> str:
    """Percent, mean over so many seeds; headings of other numbers name their units."""
    units = {measure.unit == "percent" for measure in table.measures}
    said = {frozenset({True}): f"percent, {over}", frozenset({False}): over}
    sentence = said.get(frozenset(units), f"accuracy and forgetting in percent; {over}")
    return sentence[0].upper() + sentence[1:]


def warnings(table: StudyTable) -> list[str]:
    papers = [cell.paper for cell in table.cells.values() if cell.paper]
    return list(dict.fromkeys(paper.warning for paper in papers if paper.warning))


def missing(table: StudyTable) -> list[str]:
    """The runs that are not there, in words: a row that has none by its name, else its columns, else its seeds."""
    groups: dict[str, dict[str, list[int]]] = {}
    for one in table.missing:
        groups.setdefault(one.row, {}).setdefault(one.column, []).append(one.experiment.seed)
    said = []
    for row, lacks in groups.items():
        whole = {column: tuple(seeds) == table.seeds for column, seeds in lacks.items()}
        if len(lacks) == len(table.columns) and all(whole.values()):
            said.append(row)
            continue
        for column, seeds in lacks.items():
            which = "" if whole[column] else f"seed {', '.join(map(str, seeds))}"
            said.append(" ".join(word for word in (row, column, which) if word))
    return said


def commands(table: StudyTable) -> list[str]:
    """What runs them, and no row that is whole: what is finished in another folder would be run again."""
    lacks = {one.row for one in table.missing}
    rows = tuple(row for row in table.rows if row in lacks)
    chosen = table.selection if rows == table.rows else replace(table.selection, rows=rows)
    return [chosen.command()] if table.missing else []


def compared(table: StudyTable, pairs: Sequence[Pair]) -> list[tuple[str, list[str]]]:
    """A heading for each column of numbers, and its pairs in words."""
    headings = {(column, one.name): " ".join(w for w in (one.heading, column) if w) for column, one in table.across()}
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(headings[pair.column, pair.metric], []).append(str(pair))
    return list(found.items())
