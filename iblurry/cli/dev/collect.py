"""`iblurry dev collect`: finished runs as a few small texts each, to keep beside the code."""

from __future__ import annotations

import json
from pathlib import Path

import click

from iblurry.cli.options import OutputFolder, import_option, json_option, runs_argument
from iblurry.errors import InputError


@click.command()
@runs_argument
@click.option("--out", type=OutputFolder(), default="results", help="A run goes to FOLDER/<data set>/<run>.")
@import_option
@json_option
def collect(runs: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Copy the results of finished RUNs: run folders, or folders of them (default: runs).

    Experiment, environment, summary and journal, packed where it is large; no checkpoints. `iblurry show` reads the
    copies too, and `iblurry dev reproduction` sets them beside the paper's numbers.
    """
    from iblurry.analysis.results import find_runs
    from iblurry.experiment.folder import RunFolder
    from iblurry.studies.collect import collect as copy

    finished = []
    for folder in find_runs(runs):
        if RunFolder(folder).summary() is not None:
            finished.append(folder)
        else:
            click.echo(f"{folder} is not finished and is skipped.", err=True)
    if not finished:
        raise InputError("None of these runs is finished; finish them with `iblurry run` first.")
    copies = [copy(folder, out) for folder in finished]
    if as_json:
        click.echo(json.dumps([{"folder": str(place), "is": state} for place, state in copies], indent=2))
        return
    for place, state in copies:
        click.echo(f"{place}: {state}")
