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
    from iblurry.experiment.result import Result

FEW = 8  # run folders are named one by one up to so many
LEGEND = 80  # characters of a name that fit below a figure


def show_results(results: Sequence[Result], figures: Sequence[Path], *, as_json: bool) -> None:
    """The figure into its files; the table, the names of the figures and of the runs to standard output."""
    from iblurry.files import replacing
    from iblurry.studies.describe import describe_settings, group_runs
    from iblurry.studies.figures.curves import draw_curves
    from iblurry.studies.tables.data import runs_to_json
    from iblurry.studies.tables.table import tabulate_runs
    from iblurry.studies.tables.text import runs_to_terminal

    groups = group_runs(results)
    title = describe_settings([result.experiment for result in results])
    table = tabulate_runs(groups)
    lines = {textwrap.fill(name, LEGEND): [result.records for result in group] for name, group in groups.items()}
    for path in figures:
        with replacing(path) as part:
            draw_curves({"": lines}, part, title=title)
    if as_json:
        about = {"title": title, "table": runs_to_json(table), "figures": list(map(str, figures))}
        click.echo(json.dumps(about | {"runs": _runs(groups)}, indent=2))
        return
    click.echo(title)
    click.echo(runs_to_terminal(table))
    click.echo("Figure: " + ", ".join(map(str, figures)))
    _name_folders(results)


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
