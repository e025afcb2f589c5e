"""A table as text: for the terminal, a page, a paper, a spreadsheet or a program."""

from __future__ import annotations

import io
import json
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import compress
from typing import Any, Literal

from iblurry.analysis.describe import display_name
from iblurry.analysis.significance import PairedComparison, caveats
from iblurry.analysis.table import KEYS, NOTHING, RULE, Table, TableMetric, cell_number, find_warnings
from iblurry.errors import InputError
from iblurry.experiment.metrics import NO_BOUNDARIES, has_boundaries

_OURS, _PAPER, _DIFFERENCE = _KINDS = ("ours", "paper", "difference")  # of a line
_CSV_COLUMNS = (
    *("study", "dataset", "row", "column", "metric"),
    *("n", "mean", "std", "seeds", "paper_mean", "paper_std", "difference", "verdict"),
    *("equal_compute", "equal_bytes"),  # the rows whose compute and bytes all were given; empty: their own
)
_PRETRAINED = "With a pre-trained body, which may have seen these classes, so not comparable with the others:"
_STD = "sample standard deviation (n - 1)"
_TEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}"}
    | {">": r"\textgreater{}", "–": "--", "±": r"$\pm$"}
    | {sign: f"\\{sign}" for sign in "&%$#_{}"}
)
_ARROWS = {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
_Heading = tuple[str, TableMetric]  # of a column of numbers


def to_terminal(table: Table, pairs: Sequence[PairedComparison] | None = None, *, bold: bool = True) -> str:
    """Write a study's table for the terminal: the best of our means in bold, by escape codes, or else as plain text.

    `pairs` are rows compared seed by seed; None if they were not asked for.
    """
    width = shutil.get_terminal_size().columns
    parts = [table.title]
    for title, heads, lines in _grids(table):
        text = rich_grid(heads, lines, width, bold=bold)
        parts.append(f"{title}\n{text}" if title else text)
    parts += filter(None, ["\n".join(_wrap(note, width) for note in _table_notes(table, bold=bold))])
    if table.missing_words:
        parts.append(_wrap(f"Not run yet: {'; '.join(table.missing_words)}. To run them:", width))
        parts[-1] += "".join(f"\n  {command}" for command in table.commands)
    if pairs is not None:
        for heading, sentences in _group_pairs(table, pairs).items():
            parts.append("\n".join([f"{heading}, seed by seed", *(_wrap(one, width, "  ") for one in sentences)]))
        parts.append("\n".join(_wrap(note, width) for note in caveats(pairs)))
    return "\n\n".join(parts) + "\n"


def to_markdown(table: Table, pairs: Sequence[PairedComparison] | None = None) -> str:
    """Write a study's table in Markdown; the parameters are those of `to_terminal`."""
    parts = [f"### {table.title}"]
    for title, heads, lines in _grids(table):
        parts += [f"**{title}**"] if title else []
        quoted = [[f"`{name}`" if name else "", *rest] for name, *rest in lines]
        parts.append(markdown_grid(heads, quoted, sides="l" * (1 + table.has_paper)))
    return "\n\n".join([*parts, *markdown_notes(table, pairs)]) + "\n"


def markdown_notes(table: Table, pairs: Sequence[PairedComparison] | None = None) -> list[str]:
    """Say what stands below the numbers: what they are, what has not been run, and rows compared seed by seed."""
    parts = _table_notes(table)
    if table.missing_words:
        commands = "```console\n" + "\n".join(table.commands) + "\n```"
        parts += [f"Not run yet: {'; '.join(table.missing_words)}.", commands]
    if pairs is not None:
        parts.append("#### Seed by seed")
        for heading, sentences in _group_pairs(table, pairs).items():
            parts.append(f"{heading}:\n\n" + "\n".join(f"- {sentence}" for sentence in sentences))
        parts += caveats(pairs)
    return parts


def to_latex(table: Table, pairs: Sequence[PairedComparison] | None = None) -> str:
    """Write a study's table in LaTeX: the best of our means in bold; n in the caption, or in cells where it differs.

    It is a table environment that needs booktabs and nothing else.
    """
    if pairs is not None:
        raise InputError("A LaTeX table cannot show pairs; use --pairs with --format terminal, markdown or json.")
    import pandas as pd

    counts = {*table.cells["n"][table.cells["mean"].notna()]}
    lines = _lines(table, _headings(table), partial(_latex_text, counted=len(counts) > 1))
    body = [[escape_latex(display_name(row)) if kind == _OURS else "", kind, *texts] for row, kind, texts in lines]
    body = body if table.has_paper else [[name, *texts] for name, _, *texts in body]
    first, wide, grouped = 1 + table.has_paper, len(table.metrics), table.columns != ("",)
    heads = [("", "Method"), ("", "")][:first]
    heads += [(escape_latex(column), _latex_heading(metric)) for column, metric in _headings(table)]
    columns = pd.MultiIndex.from_tuples(heads) if grouped else [head for _, head in heads]
    style = pd.DataFrame(body, columns=range(len(heads))).set_axis(columns, axis=1).style.hide(axis="index")
    text: str = style.to_latex(
        column_format="l" * first + "c" * (len(heads) - first),
        position="t",
        position_float="centering",
        hrules=True,
        label=f"tab:{table.label}",
        caption=_caption(table, counts),
        multicol_align="c",
    )
    if grouped:  # a thin line below each group
        starts = [1 + first + wide * place for place in range(len(table.columns))]
        rules = " ".join(rf"\cmidrule(lr){{{start}-{start + wide - 1}}}" for start in starts)
        text = text.replace(" \\\\\n", f" \\\\\n{rules}\n", 1)
    if table.missing_words:
        text += f"% Not run yet: {'; '.join(table.missing_words)}\n"
        text += "".join(f"%   {command}\n" for command in table.commands)
    return "% \\usepackage{booktabs}\n" + text


def to_csv(table: Table, pairs: Sequence[PairedComparison] | None = None) -> str:
    """Write a study's table as CSV: one line per cell; what there is not is empty. Refuses `pairs`, which are none."""
    if pairs is not None:
        raise InputError("A CSV table cannot show pairs; use --pairs with --format terminal, markdown or json.")
    cells = table.cells.copy()
    for name in ("study", "dataset", "equal_compute", "equal_bytes"):
        cells[name] = table.about[name]
    cells["n"] = cells["n"].where(cells["mean"].notna(), 0)
    cells["seeds"] = [" ".join(map(str, values)) for values in _values(table)]
    cells["paper_mean"] = [one and one.mean for one in cells["paper"]]
    cells["paper_std"] = [one and one.std for one in cells["paper"]]
    text: str = cells.reset_index()[[*_CSV_COLUMNS]].to_csv(index=False, lineterminator="\n")
    return text


def to_json(table: Table, pairs: Sequence[PairedComparison] | None = None) -> str:
    """Write a study's table as JSON: every number, with the folders it comes from, and the `pairs` if there are any."""
    cells = table.cells.astype(object).where(table.cells.notna(), None).reset_index()
    cells["n"] = [len(values) for values in _values(table)]
    cells["values"] = _values(table)
    cells["folders"] = [[str(run.folder) for run in table.runs.get((row, column), {}).values()]
                        for row, column in zip(cells["row"], cells["column"], strict=True)]  # fmt: skip
    cells["paper"] = [one and asdict(one) for one in cells["paper"]]
    names = [*KEYS, "n", "mean", "std", "best", "values", "folders", "paper", "difference", "verdict"]
    content: dict[str, Any] = dict(table.about) | {
        "units": {metric.name: metric.unit for metric in table.metrics},
        "std": _STD,
        "rows": table.rows,
        "columns": table.columns,
        "metrics": [metric.name for metric in table.metrics],
        "cells": cells[names].to_dict("records"),
        "stopped": _stopped(table),
        "commands": table.commands,
    }
    if pairs is not None:
        content |= {"pairs": [pair.to_json() for pair in pairs], "caveats": caveats(pairs)}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Table, Sequence[PairedComparison] | None], str]] = {  # None: no pairs were asked for
    "terminal": to_terminal,
    "text": partial(to_terminal, bold=False),
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}


def runs_to_terminal(table: Table) -> str:
    """Write a table of runs for the terminal: the best mean of each column in bold, and its caption."""
    width, (heads, *lines) = shutil.get_terminal_size().columns, _run_grid(table, table.rows)
    grid = rich_grid(heads, lines, width, sides="l" + "r" * (len(heads) - 1))
    return "\n".join([grid, *(_wrap(note, width) for note in (_describe_seeds(table), *_describe_runs(table)))])


def runs_to_markdown(table: Table) -> str:
    """Write a table of runs in Markdown: the best mean of each column in bold."""
    heads, *lines = _run_grid(table, table.rows)
    return "\n\n".join([markdown_grid(heads, lines, sides="l"), _describe_seeds(table), *_describe_runs(table)]) + "\n"


def runs_to_json(table: Table) -> dict[str, Any]:
    """Put a table of runs together for `json.dumps`."""
    numbers = {row: {metric.name: table.ours(row, "", metric.name) for metric in table.metrics} for row in table.rows}
    rows = [
        {"method": row, "n": len(table.runs[row, ""])} | {name: one and asdict(one) for name, one in found.items()}
        for row, found in numbers.items()
    ]
    units = {metric.name: metric.unit for metric in table.metrics}
    return {"unit": "percent", "units": units, "stopped": _stopped(table), "std": _STD, "rows": rows}


def to_ranking(table: Table, column: str) -> str:
    """Write what was run of a column in Markdown, the best by the first metric on top."""
    first = table.metrics[0]
    means = table.cells.xs((column, first.name), level=["column", "metric"])["mean"].dropna()
    ranked = means.sort_values(ascending=first.better is not max, kind="stable").index
    heads, *lines = _run_grid(table, ranked, column)
    numbered = [[str(place), f"`{row}`", *rest] for place, (row, *rest) in enumerate(lines, 1)]
    return markdown_grid(["", *heads], numbered, sides="rl")


def _describe_seeds(table: Table) -> str:
    """Say what the numbers of a table of runs are."""
    counts = {*table.cells["n"]}
    seeds = f"{max(counts)}" if len(counts) == 1 else "n"
    over = "one seed each" if counts == {1} else f"mean ± {_STD} over {seeds} seeds"
    return f"{_describe_units(table, over)}."


def _table_notes(table: Table, *, bold: bool = True) -> list[str]:
    """Say what the numbers are, and by which rule they are judged; `bold`: whether the form can show the best in it."""
    counts = {*table.cells["n"][table.cells["mean"].notna()]}
    over = "one seed each" if counts == {1} else f"mean ± {_STD} over (n) seeds"
    best = "; the best of ours in bold" if bold and table.cells["best"].any() else ""
    notes = [f"{_describe_units(table, over)}{best}."] if counts else []
    if table.cells["verdict"].notna().any():
        notes.append(f"Difference: ours minus the paper's; {RULE}.")
    notes += [*table.order_notes, *_describe_runs(table)]
    notes += [f"The paper's numbers: {table.about['paper_units']}."] if table.has_paper else []
    return notes + [f"⚠ {warning}." for warning in find_warnings(table.cells["paper"])]


def rich_grid(
    heads: Sequence[str], lines: Iterable[Sequence[str]], width: int, *, sides: str = "", bold: bool = True
) -> str:
    """Draw a table no wider than the terminal: what is too long is folded, never cut.

    Parameters
    ----------
    heads : sequence of str
        One for each column.
    lines : iterable of sequence of str
        The cells; one that is `**bold**` is shown so.
    width : int
        Of the terminal, in letters.
    sides : str
        "l" or "r" for each column, the side that it is aligned to; "l" for those that it does not name.
    bold : bool
        Whether the terminal shows escape codes; without them nothing is bold.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head, side in zip(heads, sides.ljust(len(heads), "l"), strict=True):
        grid.add_column(RichText(head), overflow="fold", justify="right" if side == "r" else "left")
    for line in lines:
        # Text, not str: a method called "[b]" is a name here, not markup.
        stars = [(text.removeprefix("**").removesuffix("**"), text.startswith("**")) for text in line]
        grid.add_row(*(RichText(text, style="bold" if is_best else "") for text, is_best in stars))
    written = io.StringIO()
    colours: Literal["standard"] | None = "standard" if bold else None
    Console(file=written, width=width, height=25, force_terminal=bold, color_system=colours).print(grid)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def markdown_grid(heads: Sequence[str], lines: Iterable[Sequence[str]], *, sides: str) -> str:
    """Draw a Markdown table; `sides` says of the first columns "l" or "r"; all others are aligned right."""
    rule = ["---:" if side == "r" else "---" for side in sides.ljust(len(heads), "r")]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(heads), rule, *cells])


def escape_latex(text: str) -> str:
    """Write any text as TeX prints it.

    >>> escape_latex("50% of a_b")
    '50\\\\% of a\\\\_b'
    """
    return text.translate(_TEX)


def _headings(table: Table) -> list[_Heading]:
    return [(column, metric) for column in table.columns for metric in table.metrics]


def _grids(table: Table) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, heads and lines of each grid for people: one for each metric where settings vary, else one."""
    grids = [(metric.heading, [*table.columns], [(one, metric) for one in table.columns]) for metric in table.metrics]
    if len(table.columns) == 1:
        grids = [(table.columns[0], [metric.heading for metric in table.metrics], _headings(table))]
    for title, heads, headings in grids:
        lines = [
            [row if kind == _OURS else "", *([kind] if table.has_paper else []), *texts]
            for row, kind, texts in _lines(table, headings, _text)
        ]
        yield title, ["method", *([""] if table.has_paper else []), *heads], lines


def _lines(
    table: Table, headings: Sequence[_Heading], write: Callable[[Any, str, TableMetric], str]
) -> Iterator[tuple[str, str, list[str]]]:
    """Row, kind and texts of each line: ours always; the paper's and the difference where there is one."""
    cells = {cell.Index: cell for cell in table.cells.itertuples()}
    for row in table.rows:
        own = [(cells[row, column, metric.name], metric) for column, metric in headings]
        is_there = [True, any(cell.paper for cell, _ in own), any(cell.verdict for cell, _ in own)]
        for kind in compress(_KINDS, is_there):
            yield row, kind, [write(cell, kind, metric) for cell, metric in own]


def _text(cell: Any, kind: str, metric: TableMetric, *, counted: bool = True) -> str:
    """70.26 ± 1.28 (3), or +0.64 agrees; the best between stars, as Markdown has it."""
    if kind == _DIFFERENCE:
        return f"{cell.difference:+z.{metric.digits}f} {cell.verdict}" if cell.verdict else NOTHING
    if (number := cell.paper if kind == _PAPER else cell_number(cell)) is None:
        return NOTHING
    mark = f" ({cell.n})" * counted if kind == _OURS else " ⚠" if cell.paper.warning else ""
    text = " ± ".join(number.texts(metric.digits)) + mark
    return f"**{text}**" if kind == _OURS and cell.best else text


def _latex_text(cell: Any, kind: str, metric: TableMetric, *, counted: bool) -> str:
    if kind == _DIFFERENCE:
        return f"${cell.difference:+z.{metric.digits}f}$ {cell.verdict}" if cell.verdict else "--"
    if (number := cell.paper if kind == _PAPER else cell_number(cell)) is None:
        return "--"
    mean, *spread = (text.replace(",", "{,}") for text in number.texts(metric.digits))  # else TeX sets it apart
    shown = r" \pm ".join([rf"\mathbf{{{mean}}}" if kind == _OURS and cell.best else mean, *spread])
    mark = r"^\dagger" if kind == _PAPER and cell.paper.warning else ""
    return f"${shown}{mark}$" + (f" ({cell.n})" if kind == _OURS and counted else "")


def _run_grid(table: Table, rows: Iterable[str], column: str = "") -> Iterator[list[str]]:
    """Heads and lines of a table of runs: row, n and numbers."""
    yield ["method", "n", *(metric.heading for metric in table.metrics)]
    cells = {cell.Index: cell for cell in table.cells.itertuples()}
    for row in rows:
        own = [(cells[row, column, metric.name], metric) for metric in table.metrics]
        yield [row, str(own[0][0].n), *(_text(cell, _OURS, metric, counted=False) for cell, metric in own)]


def _latex_heading(metric: TableMetric) -> str:
    """A_AUC ↑ as a formula and an arrow."""
    name, _, arrow = metric.heading.partition(" ")
    letter, line, below = name.partition("_")
    formula = rf"${letter}_\mathrm{{{below}}}$" if line else escape_latex(name)
    return " ".join(word for word in (formula, _ARROWS.get(arrow, escape_latex(arrow))) if word)


def _caption(table: Table, counts: set[int]) -> str:
    said = [f"{table.caption}."]
    if counts:
        over = f"{next(iter(counts))} seeds" if len(counts) == 1 else "(n) seeds"
        numbers = "one seed" if counts == {1} else f"mean ± sample standard deviation over {over}"
        best = "; best in bold" if table.cells["best"].any() else ""
        said.append(f"{_describe_units(table, numbers)}{best}.")
    said += [*table.order_notes, *_describe_runs(table)]
    if table.has_paper:
        said.append("Paper: as printed by Koh et al. (ICLR 2022).")
    if table.cells["verdict"].notna().any():
        said.append("Difference: ours minus theirs; agrees: no further apart than two standard errors of it.")
    caption = escape_latex(" ".join(said))
    return caption + "".join(rf" $^\dagger${escape_latex(warning)}." for warning in find_warnings(table.cells["paper"]))


def _describe_units(table: Table, over: str) -> str:
    """Percent, mean over so many seeds; headings of other numbers name their units."""
    in_percent = {metric.unit == "percent" for metric in table.metrics}
    if in_percent == {True}:
        return f"Percent, {over}"
    sentence = over if in_percent == {False} else f"accuracy and forgetting in percent; {over}"
    return sentence[0].upper() + sentence[1:]


def _describe_runs(table: Table) -> list[str]:
    """Sentences on runs with pre-trained bodies, on stopped ones, and on those without task boundaries, if any."""
    said = [f"{one['run']} at sample {one['at']:,} ({one['reason']})" for one in _stopped(table)]
    trained = dict.fromkeys(row for row, *_, run in table.all_runs if run.pretrained)
    notes = [f"{_PRETRAINED} {', '.join(trained)}."] if trained else []
    notes += [f"Stopped early, so only a part of the stream: {'; '.join(said)}."] if said else []
    if {"a_avg", "f_last"} & {metric.name for metric in table.metrics}:
        without = dict.fromkeys(row for row, *_, run in table.all_runs if not has_boundaries(run.records))
        which = f": {', '.join(without)}" if len(without) < len(table.rows) else ", as in these runs"
        notes += [f"{NO_BOUNDARIES}{which}."] if without else []
    return notes


def _stopped(table: Table) -> list[dict[str, Any]]:
    """Runs that a callback ended before their stream, by row, column and seed."""
    return [
        {"run": " ".join(filter(None, [row, column, f"seed {seed}"])), "at": stop.at, "reason": stop.reason}
        for row, column, seed, run in table.all_runs
        if (stop := run.stopped) is not None
    ]


def _values(table: Table) -> list[dict[int, float]]:
    """Returns the values of each cell by seed; empty unless every run has one."""
    found = {(column, metric.name): table.by_seed(column, metric.name) for column, metric in _headings(table)}
    return [found[column, metric].get(row, {}) for row, column, metric in table.cells.index]


def _group_pairs(table: Table, pairs: Sequence[PairedComparison]) -> dict[str, list[str]]:
    """Pairs in words, by a heading for each column of numbers."""
    headings = {
        (column, metric.name): " ".join(filter(None, [metric.heading, column])) for column, metric in _headings(table)
    }
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(headings[pair.column, pair.metric], []).append(str(pair))
    return found


def _wrap(sentence: str, width: int, indent: str = "") -> str:
    return textwrap.fill(
        sentence, width, initial_indent=indent, subsequent_indent=2 * indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
