"""What `run` and `show` print and draw: one table, one figure, from journals alone."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from iblurry.experiment.result import Result

FEW = 8  # run folders are named one by one up to so many
LEGEND = 80  # characters of a name that fit below a figure


def show_results(results: Sequence[Result], figures: Sequence[Path], *, as_json: bool) -> None:
    """The figure into its files; the table, the names of the figures and of the runs to standard output."""
    from iblurry.files import replacing
    from iblurry.studies.run_figure import curves
    from iblurry.studies.run_rows import grouped, settings
    from iblurry.studies.run_table import caption, render, rows, to_json

    groups = grouped(results)
    title = settings([result.experiment for result in results])
    table = rows({name: [result.metrics for result in group] for name, group in groups.items()})
    lines = {textwrap.fill(name, LEGEND): [result.records for result in group] for name, group in groups.items()}
    for path in figures:
        with replacing(path) as part:
            curves(lines, part, title=title)
    if as_json:
        about = {"title": title, "table": json.loads(to_json(table)), "figures": list(map(str, figures))}
        click.echo(json.dumps(about | {"runs": _runs(groups)}, indent=2))
        return
    click.echo(title)
    _print(render(table))
    click.echo(caption(table))
    click.echo("Figure: " + ", ".join(map(str, figures)))
    _name_folders(results)


def _print(table: Table) -> None:
    """Narrow enough for 80 columns: no borders, and long names folded, never cut."""
    from rich import box
    from rich.console import Console

    table.box, table.show_edge, table.pad_edge, table.padding = box.SIMPLE_HEAD, False, False, (0, 1, 0, 0)
    table.caption = None  # it would be folded at the table's width
    table.columns[0].overflow = "fold"
    Console(highlight=False).print(table)


def _runs(groups: Mapping[str, Sequence[Result]]) -> list[dict[str, Any]]:
    return [
        {
            "folder": str(result.folder),
            "row": row,
            "method": result.experiment.method.name,
            "dataset": result.experiment.dataset,
            "seed": result.experiment.seed,
            "finished": result.summary is not None,
        }
        | asdict(result.metrics)
        | (result.summary or {})
        for row, group in groups.items()
        for result in group
    ]


def _name_folders(results: Sequence[Result]) -> None:
    from iblurry.experiment.journal import Start

    if len(results) <= FEW:
        click.echo("Runs:   " + "\n        ".join(str(result.folder) for result in results))
    else:
        parents = [result.folder.parent for result in results]
        counts = [f"{parents.count(parent)} folders in {parent}" for parent in dict.fromkeys(parents)]
        click.echo("Runs:   " + ", ".join(counts))
    for result in results:
        start = result.records[0]
        if result.summary is None and isinstance(start, Start):
            click.echo(f"Not finished: {result.folder}, {result.metrics.samples:,} of {start.samples:,} samples")
