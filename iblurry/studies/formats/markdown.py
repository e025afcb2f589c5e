"""For a page."""

from __future__ import annotations

from collections.abc import Sequence

from iblurry.studies.formats.layout import (
    OURS,
    Block,
    Line,
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


def to_markdown(table: StudyTable, pairs: Sequence[Pair] | None = None) -> str:
    """The best of our means in bold."""
    parts = [f"### {title(table)}"]
    for block in blocks(table):
        parts += [f"**{block.title}**"] if block.title else []
        parts.append(_grid(table, block))
    parts += notes(table)
    if table.missing:
        parts += [f"Not run yet: {'; '.join(missing(table))}.", "```console\n" + "\n".join(commands(table)) + "\n```"]
    if pairs is not None:
        parts.append("#### Seed by seed")
        parts += [f"{heading}:\n\n" + "\n".join(f"- {one}" for one in said) for heading, said in compared(table, pairs)]
        parts += caveats(pairs)
    return "\n\n".join(parts) + "\n"


def _grid(table: StudyTable, block: Block) -> str:
    kinds = has_paper(table)
    heads = ["method", *([""] if kinds else []), *block.headings]
    rule = ["---"] * (1 + kinds) + ["---:"] * len(block.headings)
    body = [_line(table, line, kinds) for line in lines(table, block.across)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, rule, *body])


def _line(table: StudyTable, line: Line, kinds: bool) -> list[str]:
    name = f"`{line.row}`".replace("|", "\\|") if line.kind == OURS else ""
    cells = [text(cell, line.kind) for cell in line.cells]
    if line.kind == OURS:
        cells = [f"**{c}**" if table.is_best(cell) else c for c, cell in zip(cells, line.cells, strict=True)]
    return [name, *([line.kind] if kinds else []), *cells]
