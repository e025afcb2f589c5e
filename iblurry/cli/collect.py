"""`iblurry collect`: finished runs as a few small texts each, to keep beside the code."""

from __future__ import annotations

import json
from pathlib import Path

import click

from iblurry.cli.paths import check_folder, run_folders
from iblurry.cli.user_modules import import_option, import_user_modules
from iblurry.errors import InputError


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    default="results",
    show_default=True,
    help="A run goes to FOLDER/<data set>/<run>.",
)
@import_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def collect(runs: tuple[Path, ...], out: Path, modules: tuple[str, ...], as_json: bool) -> None:
    """Copy what finished RUNs amount to: run folders, or folders of them (default: runs).

    Experiment, environment, summary and journal, packed where it is large; no checkpoints. `iblurry show` reads the
    copies too, and `iblurry reproduction` sets them beside the paper's numbers.
    """
    check_folder(out, f"--out {out}")
    folders = run_folders(runs or (Path("runs"),))
    import_user_modules(modules)

    from iblurry.experiment.folder import RunFolder
    from iblurry.studies.collect import collect as copy

    finished = [folder for folder in folders if RunFolder(folder).summary() is not None]
    for folder in folders:
        if folder not in finished:
            click.echo(f"{folder} is not finished and is left out.", err=True)
    if not finished:
        raise InputError("None of these runs is finished; let `iblurry run` come to its end first.")
    copies = [copy(folder, out) for folder in finished]
    if as_json:
        click.echo(json.dumps([{"folder": str(place), "is": state} for place, state in copies], indent=2))
        return
    for place, state in copies:
        click.echo(f"{place}: {state}")
