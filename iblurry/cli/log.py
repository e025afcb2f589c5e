"""`iblurry log`: runs into TensorBoard, Weights & Biases or MLflow, finished or under way."""

from __future__ import annotations

import json
from pathlib import Path

import click

from iblurry.cli.options import OutputFolder, runs_argument
from iblurry.errors import InputError


@click.command()
@runs_argument
@click.option(
    "--to",
    metavar="LOGGER",
    type=click.Choice(("tensorboard", "wandb", "mlflow")),
    required=True,
    help="tensorboard, wandb or mlflow; each is an extra to install.",
)
@click.option("--out", type=OutputFolder(), help="Where they are kept on this machine.  [default: logs/LOGGER]")
@click.option("--project", metavar="NAME", help="W&B's project or MLflow's experiment.  [default: iblurry]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def log(runs: tuple[Path, ...], to: str, out: Path | None, project: str | None, as_json: bool) -> None:
    """Write the journals of RUNs to a logger: run folders, or folders of them (default: runs).

    Accuracy, learning rate, updates and new classes by samples seen, the final numbers, hyper-parameters, versions and
    hardware. Log a run again to bring it up to date while it is under way. Runs are only read.
    """
    from iblurry.analysis.results import find_runs

    folders = find_runs(runs)
    _check_names(folders)

    from iblurry.studies.loggers.history import read_history
    from iblurry.studies.loggers.logger import log_run, make_logger

    logger = make_logger(to, out=out, project=project)
    logged = []
    for folder in folders:
        run = read_history(folder)
        if run is None:
            click.echo(f"{folder} has not started yet and is skipped.", err=True)
            continue
        place, is_finished = log_run(run, logger), run.summary is not None
        logged.append({"folder": str(folder), "place": place, "finished": is_finished, "events": len(run.events)})
        if not as_json:
            state = "finished" if is_finished else "not finished"
            click.echo(f"{folder}: {len(run.events):,} events, {state}, in {place}")
    if as_json:
        click.echo(json.dumps(logged, indent=2))


def _check_names(folders: list[Path]) -> None:
    """Two runs of one name would become one."""
    first: dict[str, Path] = {}
    for folder in folders:
        twin = first.setdefault(folder.resolve().name, folder)
        if twin is not folder:
            raise InputError(f"{twin} and {folder} have the same name and would be written into one; name one of them.")
