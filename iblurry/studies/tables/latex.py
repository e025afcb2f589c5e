"""Tables for a paper: a table environment that needs booktabs and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from iblurry.errors import InputError
from iblurry.studies.paper import display_name
from iblurry.studies.significance import PairedComparison
from iblurry.studies.tables.layout import (
    DIFFERENCE,
    OURS,
    TableLine,
    describe_missing,
    describe_orders,
    describe_runs,
    describe_units,
    format_mean_std,
    has_best,
    has_paper,
    missing_commands,
    paper_warnings,
    table_lines,
)
from iblurry.studies.tables.table import StudyTable, TableCell, TableMetric

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "±": r"$\pm$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
ARROWS = {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}


def to_latex(table: StudyTable, pairs: Sequence[PairedComparison] | None = None) -> str:
    """A study's table in LaTeX: the best of our means in bold; n in the caption, or in the cells where it differs."""
    if pairs is not None:
        raise InputError("A LaTeX table cannot show pairs; use --pairs with --format terminal, markdown or json.")
    kinds, across = has_paper(table), list(table.headings())
    counts = {len(cell.runs) for cell in table.cells.values() if cell.ours}
    body = [_line(table, line, kinds, counted=len(counts) > 1) for line in table_lines(table, across)]
    made = [
        r"% \usepackage{booktabs}",
        r"\begin{table}[t]",
        r"  \centering",
        rf"  \caption{{{_caption(table, counts)}}}",
        rf"  \label{{tab:{table.selection.slug}}}",
        rf"  \begin{{tabular}}{{{'l' * (1 + kinds)}{'c' * len(across)}}}",
        r"    \toprule",
        *(f"    {row}" for row in _heads(table, kinds)),
        r"    \midrule",
        *(f"    {row}" for row in body),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    if table.missing:
        made += [
            f"% Not run yet: {'; '.join(describe_missing(table))}",
            *(f"%   {one}" for one in missing_commands(table)),
        ]
    return "\n".join(made) + "\n"


def escape_latex(text: str) -> str:
    """Any text as TeX prints it.

    >>> escape_latex("50% of a_b")
    '50\\\\% of a\\\\_b'
    """
    return "".join(SPECIAL.get(sign, sign) for sign in text)


def _caption(table: StudyTable, counts: set[int]) -> str:
    said = [f"{table.study.title}: {table.settings}."]
    if counts:
        over = f"{next(iter(counts))} seeds" if len(counts) == 1 else "(n) seeds"
        numbers = "one seed" if counts == {1} else f"mean ± sample standard deviation over {over}"
        bold = "; best in bold" if has_best(table) else ""
        said.append(f"{describe_units(table, numbers)}{bold}.")
    said += describe_orders(table) + describe_runs(table)
    if has_paper(table):
        said.append("Paper: as printed by Koh et al. (ICLR 2022).")
    if any(cell.verdict for cell in table.cells.values()):
        said.append("Difference: ours minus theirs; agrees: no further apart than two standard errors of it.")
    caption = escape_latex(" ".join(said))
    return caption + "".join(rf" $^\dagger${escape_latex(warning)}." for warning in paper_warnings(table))


def _heads(table: StudyTable, kinds: bool) -> list[str]:
    names = [*("Method", ""), *(_heading(metric) for _, metric in table.headings())]
    if not kinds:
        del names[1]
    if table.columns == ("",):
        return [_row(names)]
    wide, first = len(table.metrics), 2 + kinds
    groups = [*([""] * (1 + kinds)), *(rf"\multicolumn{{{wide}}}{{c}}{{{escape_latex(one)}}}" for one in table.columns)]
    starts = [first + wide * at for at in range(len(table.columns))]
    rules = [rf"\cmidrule(lr){{{start}-{start + wide - 1}}}" for start in starts]
    return [_row(groups), " ".join(rules), _row(names)]


def _heading(metric: TableMetric) -> str:
    """A_AUC ↑ as a formula and an arrow."""
    name, _, arrow = metric.heading.partition(" ")
    letter, line, below = name.partition("_")
    formula = rf"${letter}_\mathrm{{{below}}}$" if line else escape_latex(name)
    return " ".join(word for word in (formula, ARROWS.get(arrow, escape_latex(arrow))) if word)


def _line(table: StudyTable, line: TableLine, kinds: bool, *, counted: bool) -> str:
    name = escape_latex(display_name(line.row)) if line.kind == OURS else ""
    cells = [_cell(table, cell, line.kind, counted=counted) for cell in line.cells]
    return _row([name, *([line.kind] if kinds else []), *cells])


def _cell(table: StudyTable, cell: TableCell, kind: str, *, counted: bool) -> str:
    if kind == DIFFERENCE:
        return "--" if cell.difference is None else f"${cell.difference:+z.{cell.metric.digits}f}$ {cell.verdict}"
    number = cell.ours if kind == OURS else cell.paper
    if number is None:
        return "--"
    mean, *spread = (
        text.replace(",", "{,}") for text in format_mean_std(cell.metric, number)
    )  # else TeX sets it apart
    if kind == OURS and table.is_best(cell):
        mean = rf"\mathbf{{{mean}}}"
    shown = r" \pm ".join([mean, *spread])
    mark = r"^\dagger" if kind != OURS and cell.paper and cell.paper.warning else ""
    return f"${shown}{mark}$" + (f" ({len(cell.runs)})" if kind == OURS and counted else "")


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
