"""`iblurry show`: what journals alone say, as a table and a figure or in a logger; `iblurry run` ends with the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iblurry.cli import options
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.experiment.callbacks import Logger
    from iblurry.experiment.result import Result

WIDE = 70  # letters of the figures' names that have room on a line
FEW = 8  # run folders are named one by one up to so many


@click.command()
@options.runs_argument
@click.option("--figure", type=options.FIGURE, help="Draw accuracy over samples into this .png, .svg or .pdf, too.")
@options.import_option
@options.metric_option
@click.option(
    "--to",
    "logger",
    metavar="LOGGER",
    type=click.Choice(("tensorboard", "wandb", "mlflow")),
    help="Write them to tensorboard, wandb or mlflow instead; each is an extra to install.",
)
@click.option(
    "--out", type=options.OutputFolder(), help="Where --to keeps them on this machine.  [default: logs/LOGGER]"
)
@click.option("--project", metavar="NAME", help="W&B's project or MLflow's experiment of --to.  [default: iblurry]")
@options.json_option
def show(
    runs: tuple[Path, ...],
    figure: Path | None,
    metric: tuple[str, ...],
    logger: str | None,
    out: Path | None,
    project: str | None,
    as_json: bool,
) -> None:
    """Print the table of RUNs: run folders, or folders of them (default: runs).

    Runs that differ only in their seed make one row. Unfinished ones count as far as they got. With --to, accuracy,
    learning rate and new classes by samples seen, final numbers, hyper-parameters, versions and hardware go to a
    logger; write a run again to bring it up to date. Runs are only read.
    """
    from iblurry.analysis.results import find_runs

    folders = find_runs(runs)
    if logger is not None:
        if figure is not None or metric:
            raise InputError(f"--to {logger} writes whole journals; leave --figure and --metric out.")
        _log(folders, logger, out, project, as_json=as_json)
        return
    if out is not None or project is not None:
        raise InputError(f"{f'--out {out}' if out else f'--project {project}'} is for a logger; name it with --to.")
    from iblurry.experiment.folder import RunFolder
    from iblurry.experiment.result import read_result

    results = []
    for place in map(RunFolder, folders):
        result = read_result(place) if place.journal.exists() else None
        if result is not None and (result.summary is not None or result.metrics.queries):
            results.append(result)
        else:
            click.echo(f"{place.path} has no query yet and is skipped.", err=True)
    if not results:
        searched = ", ".join(map(str, runs))
        raise InputError(f"No run in {searched} has a query yet; continue it with `iblurry run` first.")
    show_results(results, [figure] if figure else [], metrics=options.split_names(metric), as_json=as_json)


def show_results(
    results: Sequence[Result], figures: Sequence[Path], *, metrics: Sequence[str] | None = None, as_json: bool
) -> None:
    """The table to standard output; then the figure into its files, their names and those of the runs."""
    from iblurry.analysis.describe import describe_settings, group_runs
    from iblurry.analysis.formats import runs_to_json, runs_to_terminal
    from iblurry.analysis.table import ACCURACY_METRICS, logged_names, tabulate_runs

    groups = group_runs(results)
    title = describe_settings([result.experiment for result in results])
    table = tabulate_runs(groups, metrics or [*ACCURACY_METRICS, *logged_names(results)])
    if as_json:
        figures = _draw(groups, figures, title)
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
    figures = _draw(groups, figures, title)
    between = ", " if sum(len(str(path)) for path in figures) < WIDE else "\n        "
    if figures:
        click.echo("Figure: " + between.join(map(str, figures)))
    _name_folders(results)


def _draw(groups: Mapping[str, Sequence[Result]], figures: Sequence[Path], title: str) -> Sequence[Path]:
    """The figures drawn: none where no run has an answer, as a callback may have stopped each before its first."""
    asked = {name: [run.records for run in group if run.metrics.queries] for name, group in groups.items()}
    lines = {name: runs for name, runs in asked.items() if runs}
    if not lines or not figures:
        return ()
    from iblurry.analysis.figures.curves import draw_curves
    from iblurry.storage.files import replacing

    for path in figures:
        with replacing(path) as part:
            draw_curves({"": lines}, part, title=title)
    return figures


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


def _log(folders: Sequence[Path], to: str, out: Path | None, project: str | None, *, as_json: bool) -> None:
    """Writes journals to a logger; two runs of one name would become one there."""
    if to == "tensorboard" and project is not None:
        raise InputError(f"--project {project}: TensorBoard has folders and no projects; give --out instead.")
    first: dict[str, Path] = {}
    for folder in folders:
        twin = first.setdefault(folder.resolve().name, folder)
        if twin is not folder:
            raise InputError(f"{twin} and {folder} have the same name and would be written into one; name one of them.")

    from iblurry.experiment import callbacks
    from iblurry.experiment.result import replay

    kinds: dict[str, type[Logger]] = {
        "tensorboard": callbacks.TensorBoard,
        "wandb": callbacks.WandB,
        "mlflow": callbacks.MLflow,
    }
    given = {"out": None if out is None else str(out), "project": project}
    logger = kinds[to](**{name: value for name, value in given.items() if value is not None})
    logged = []
    for folder in folders:
        run = replay(folder, logger)
        if not run.journal:
            click.echo(f"{folder} has not started yet and is skipped.", err=True)
            continue
        if not run.is_finished:
            logger.close(finished=False)
        logged.append({"folder": str(folder), "place": logger.place, "finished": run.is_finished})
        if not as_json:
            click.echo(f"{folder}: {'finished' if run.is_finished else 'not finished'}, in {logger.place}")
    if as_json:
        click.echo(json.dumps(logged, indent=2))
