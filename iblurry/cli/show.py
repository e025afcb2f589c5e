"""`iblurry show`: the table and the figure again, from journals alone; `iblurry run` ends with the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iblurry.cli.options import FIGURE, import_option, metric_option, run_folders, runs_argument
from iblurry.cli.study_options import split_names
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.experiment.result import Result

WIDE = 70  # letters of the figures' names that have room on a line
FEW = 8  # run folders are named one by one up to so many


@click.command()
@runs_argument
@click.option(
    "--figure",
    type=FIGURE,
    help="Draw into this .png, .svg or .pdf.  [default: a .png and .svg beside the first run]",
)
@import_option
@metric_option(
    "a_auc, min_acc, forgetting:max, or what callbacks log: mine, mine:mean.", "accuracies, all that was logged"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def show(runs: tuple[Path, ...], figure: Path | None, metric: tuple[str, ...], as_json: bool) -> None:
    """Print the table and draw the figure of RUNs: run folders, or folders of them (default: runs).

    Runs that differ only in their seed make one row. Unfinished ones count as far as they got.
    """
    folders = run_folders(runs)
    figures = [figure] if figure else _default_figures(folders)
    for path in figures:
        FIGURE.convert(path, None, None)

    from iblurry.experiment.folder import RunFolder
    from iblurry.experiment.result import read_result

    results = []
    for place in map(RunFolder, folders):
        result = read_result(place) if place.journal.exists() else None
        if result is not None and (result.summary is not None or result.metrics.queries):
            results.append(result)
        else:
            click.echo(f"{place.path} has not come to a query yet and is left out.", err=True)
    if not results:
        searched = ", ".join(map(str, runs))
        raise InputError(f"No run in {searched} has come to a query yet; let `iblurry run` go on first.")
    show_results(results, figures, metrics=split_names(metric), as_json=as_json)


def show_results(
    results: Sequence[Result], figures: Sequence[Path], *, metrics: Sequence[str] | None = None, as_json: bool
) -> None:
    """The figure into its files; the table, the names of the figures and of the runs to standard output."""
    from iblurry.files import replacing
    from iblurry.studies.describe import describe_settings, group_runs
    from iblurry.studies.figures.curves import draw_curves
    from iblurry.studies.tables.data import runs_to_json
    from iblurry.studies.tables.table import ACCURACY_METRICS, own_names, tabulate_runs
    from iblurry.studies.tables.text import runs_to_terminal

    groups = group_runs(results)
    title = describe_settings([result.experiment for result in results])
    table = tabulate_runs(groups, metrics or [*ACCURACY_METRICS, *own_names(results)])
    asked = {name: [run.records for run in group if run.metrics.queries] for name, group in groups.items()}
    lines = {name: runs for name, runs in asked.items() if runs}  # a callback may have stopped one before its first
    figures = figures if lines else ()
    for path in figures:
        with replacing(path) as part:
            draw_curves({"": lines}, part, title=title)
    if as_json:
        runs = [
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
        about = {"title": title, "table": runs_to_json(table), "figures": list(map(str, figures)), "runs": runs}
        click.echo(json.dumps(about, indent=2))
        return
    click.echo(title)
    click.echo(runs_to_terminal(table))
    between = ", " if sum(len(str(path)) for path in figures) < WIDE else "\n        "
    if figures:
        click.echo("Figure: " + between.join(map(str, figures)))
    _name_folders(results)


def _default_figures(folders: Sequence[Path]) -> list[Path]:
    """accuracy.png and .svg beside the first run; some of the runs there have a name of their own."""
    from iblurry.studies.describe import make_file_name

    place = folders[0].parent
    is_whole = {*folders} == {path.parent for path in place.glob("*/experiment.json")}
    stem = "accuracy" if is_whole else make_file_name(["accuracy", *(folder.name for folder in folders)])
    return [place / f"{stem}.{ending}" for ending in ("png", "svg")]


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
