"""For the terminal: as many columns side by side as fit."""

from __future__ import annotations

import io
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from iblurry.studies.formats.layout import (
    OURS,
    Block,
    blocks,
    commands,
    compared,
    has_paper,
    lines,
    missing,
    notes,
    text,
    title,
)
from iblurry.studies.significance import Pair, caveats
from iblurry.studies.table import StudyTable


def to_terminal(table: StudyTable, pairs: Sequence[Pair] | None = None) -> str:
    """The best of our means in bold; escape codes, which `click.echo` leaves out where there is no terminal."""
    width = shutil.get_terminal_size().columns
    parts = [title(table)]
    for block in blocks(table):
        for piece in _fitting(table, block, width):
            parts.append((f"{piece.title}\n" if piece.title else "") + _grid(table, piece, width))
    parts += filter(None, ["\n".join(_wrapped(note, width) for note in notes(table))])
    if table.missing:
        parts.append(_wrapped(f"Not run yet: {'; '.join(missing(table))}. To run them:", width))
        parts[-1] += "".join(f"\n  {one}" for one in commands(table))
    if pairs is not None:
        for heading, said in compared(table, pairs):
            parts.append("\n".join([f"{heading}, seed by seed", *(_wrapped(one, width, "  ") for one in said)]))
        parts.append("\n".join(_wrapped(note, width) for note in caveats(pairs)))
    return "\n\n".join(parts) + "\n"


def _wrapped(sentence: str, width: int, indent: str = "") -> str:
    return textwrap.fill(
        sentence,
        width,
        initial_indent=indent,
        subsequent_indent=2 * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _fitting(table: StudyTable, block: Block, width: int) -> Iterator[Block]:
    """The same in pieces that are no wider than the terminal, if one column is not."""
    shown = list(lines(table, block.across))
    wide = max(len(word) for line in shown for word in [*block.headings, *(text(c, line.kind) for c in line.cells)])
    taken = max(map(len, table.rows)) + 1 + (11 if has_paper(table) else 0)
    many = max(1, (width - taken) // (wide + 1))
    for at in range(0, len(block.across), many):
        yield Block(block.title, block.headings[at : at + many], block.across[at : at + many])


def _grid(table: StudyTable, block: Block, width: int) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    kinds = has_paper(table)
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("method", overflow="fold")
    if kinds:
        grid.add_column("", no_wrap=True)
    for heading in block.headings:
        grid.add_column(Text(heading), no_wrap=True)
    for line in lines(table, block.across):
        ours = line.kind == OURS
        # Text, not str: a method called "[b]" is a name here, not markup.
        cells = [Text(text(c, line.kind), style="bold" if ours and table.is_best(c) else "") for c in line.cells]
        grid.add_row(Text(line.row if ours else ""), *([line.kind] if kinds else []), *cells)
    written = io.StringIO()
    console = Console(file=written, width=width, height=25, force_terminal=True, color_system="standard")
    console.print(grid)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())
