"""Tables for people: in the terminal, as many columns side by side as fit, and in Markdown."""

from __future__ import annotations

import io
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal

from iblurry.studies.significance import PairedComparison, caveats
from iblurry.studies.tables.layout import (
    OURS,
    TableBlock,
    TableLine,
    cell_text,
    describe_missing,
    describe_runs,
    describe_units,
    group_pairs,
    has_paper,
    missing_commands,
    own_text,
    split_blocks,
    table_lines,
    table_notes,
    table_title,
)
from iblurry.studies.tables.table import ResultTable, StudyTable

Cells = Sequence[tuple[str, bool]]  # text, and whether it is the best of its column


def runs_to_terminal(table: ResultTable) -> str:
    """A table of runs for the terminal: the best mean of each column in bold, by escape codes, and its caption."""
    heads = ["method", "n", *(metric.heading for metric in table.metrics)]
    width = shutil.get_terminal_size().columns
    grid = rich_grid(heads, _run_lines(table), width, sides="l" + "r" * (len(heads) - 1))
    return "\n".join([grid, *(_wrap(note, width) for note in (describe_seeds(table), *describe_runs(table)))])


def runs_to_markdown(table: ResultTable) -> str:
    """A table of runs in Markdown: the best mean of each column in bold."""
    heads = ["method", "n", *(metric.heading for metric in table.metrics)]
    grid = markdown_grid(heads, map(_in_stars, _run_lines(table)), sides="l" + "r" * (len(heads) - 1))
    return "\n\n".join([grid, describe_seeds(table), *describe_runs(table)]) + "\n"


def describe_seeds(table: ResultTable) -> str:
    """What the numbers of a table of runs are."""
    counts = {len(cell.runs) for cell in table.cells.values()}
    seeds = f"{max(counts)}" if len(counts) == 1 else "n"
    over = "one seed each" if counts == {1} else f"mean ± sample standard deviation (n - 1) over {seeds} seeds"
    return f"{describe_units(table, over)}."


def to_terminal(table: StudyTable, pairs: Sequence[PairedComparison] | None = None, *, bold: bool = True) -> str:
    """A study's table for the terminal: the best of our means in bold, by escape codes, or else as plain text.

    `pairs` are rows compared seed by seed; None if they were not asked for.
    """
    width = shutil.get_terminal_size().columns
    parts = [table_title(table)]
    for block in split_blocks(table):
        for piece in _fit_width(table, block, width):
            grid = rich_grid(_heads(table, piece), _study_lines(table, piece), width, bold=bold)
            parts.append((f"{piece.title}\n" if piece.title else "") + grid)
    parts += filter(None, ["\n".join(_wrap(note, width) for note in table_notes(table, bold=bold))])
    if table.missing:
        parts.append(_wrap(f"Not run yet: {'; '.join(describe_missing(table))}. To run them:", width))
        parts[-1] += "".join(f"\n  {command}" for command in missing_commands(table))
    if pairs is not None:
        for heading, sentences in group_pairs(table, pairs):
            parts.append("\n".join([f"{heading}, seed by seed", *(_wrap(one, width, "  ") for one in sentences)]))
        parts.append("\n".join(_wrap(note, width) for note in caveats(pairs)))
    return "\n\n".join(parts) + "\n"


def to_markdown(table: StudyTable, pairs: Sequence[PairedComparison] | None = None) -> str:
    """A study's table in Markdown; the parameters are those of `to_terminal`."""
    parts = [f"### {table_title(table)}"]
    for block in split_blocks(table):
        parts += [f"**{block.title}**"] if block.title else []
        lines = ([(f"`{name}`" if name else "", best), *rest] for (name, best), *rest in _study_lines(table, block))
        sides = "l" * (1 + has_paper(table)) + "r" * len(block.headings)
        parts.append(markdown_grid(_heads(table, block), map(_in_stars, lines), sides=sides))
    return "\n\n".join([*parts, *markdown_notes(table, pairs)]) + "\n"


def markdown_notes(table: StudyTable, pairs: Sequence[PairedComparison] | None = None) -> list[str]:
    """What stands below the numbers: what they are, what has not been run, and rows compared seed by seed."""
    parts = table_notes(table)
    if table.missing:
        commands = "```console\n" + "\n".join(missing_commands(table)) + "\n```"
        parts += [f"Not run yet: {'; '.join(describe_missing(table))}.", commands]
    if pairs is not None:
        parts.append("#### Seed by seed")
        for heading, sentences in group_pairs(table, pairs):
            parts.append(f"{heading}:\n\n" + "\n".join(f"- {sentence}" for sentence in sentences))
        parts += caveats(pairs)
    return parts


def to_ranking(table: ResultTable, column: str) -> str:
    """What was run of a column in Markdown, the best by the first metric on top."""
    first = table.metrics[0]
    means = {cell.row: cell.ours.mean for cell in table.column(column, first.name) if cell.ours}
    ranked = sorted(means, key=lambda row: means[row], reverse=first.better is max)
    lines = [
        [str(place), f"`{row}`", *rest]
        for place, (row, *rest) in enumerate(map(_in_stars, _run_lines(table, ranked, column)), 1)
    ]
    heads = ["", "method", "n", *(metric.heading for metric in table.metrics)]
    return markdown_grid(heads, lines, sides="rl" + "r" * (len(heads) - 2))


def markdown_grid(heads: Sequence[str], lines: Iterator[Sequence[str]] | Sequence[Sequence[str]], *, sides: str) -> str:
    """A Markdown table; `sides` has an "r" for each column that is aligned right."""
    rule = ["---:" if side == "r" else "---" for side in sides]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(heads), rule, *cells])


def _run_lines(table: ResultTable, rows: Sequence[str] | None = None, column: str = "") -> Iterator[Cells]:
    for row in table.rows if rows is None else rows:
        cells = [table.cells[row, column, metric.name] for metric in table.metrics]
        numbers = [(own_text(cell), table.is_best(cell)) for cell in cells]
        yield [(row, False), (str(len(cells[0].runs)), False), *numbers]


def _heads(table: StudyTable, block: TableBlock) -> list[str]:
    return ["method", *([""] if has_paper(table) else []), *block.headings]


def _study_lines(table: StudyTable, block: TableBlock) -> Iterator[Cells]:
    for line in table_lines(table, block.columns):
        kind = [(line.kind, False)] if has_paper(table) else []
        yield [(line.row if line.kind == OURS else "", False), *kind, *_numbers(table, line)]


def _numbers(table: StudyTable, line: TableLine) -> Cells:
    return [(cell_text(cell, line.kind), line.kind == OURS and table.is_best(cell)) for cell in line.cells]


def _in_stars(line: Cells) -> list[str]:
    return [f"**{text}**" if is_best else text for text, is_best in line]


def rich_grid(heads: Sequence[str], lines: Iterator[Cells], width: int, *, sides: str = "", bold: bool = True) -> str:
    """No wider than the terminal: no borders, and long names folded, never cut; without `bold` no escape codes."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head, side in zip(heads, sides.ljust(len(heads), "l"), strict=True):
        first = head == heads[0]
        grid.add_column(
            Text(head),
            no_wrap=not first,
            overflow="fold" if first else "ellipsis",
            justify="right" if side == "r" else "left",
        )
    for line in lines:
        # Text, not str: a method called "[b]" is a name here, not markup.
        grid.add_row(*(Text(text, style="bold" if is_best else "") for text, is_best in line))
    written = io.StringIO()
    colours: Literal["standard"] | None = "standard" if bold else None
    Console(file=written, width=width, height=25, force_terminal=bold, color_system=colours).print(grid)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def _fit_width(table: StudyTable, block: TableBlock, width: int) -> Iterator[TableBlock]:
    """The same in pieces that are no wider than the terminal, if one column is not."""
    texts = [cell_text(cell, line.kind) for line in table_lines(table, block.columns) for cell in line.cells]
    widest = max(map(len, [*block.headings, *texts]))
    taken = max(map(len, table.rows)) + 1 + (11 if has_paper(table) else 0)
    fitting = max(1, (width - taken) // (widest + 1))
    for start in range(0, len(block.columns), fitting):
        piece = slice(start, start + fitting)
        yield TableBlock(block.title, block.headings[piece], block.columns[piece])


def _wrap(sentence: str, width: int, indent: str = "") -> str:
    return textwrap.fill(
        sentence,
        width,
        initial_indent=indent,
        subsequent_indent=2 * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
