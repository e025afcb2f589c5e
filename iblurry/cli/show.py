"""`iblurry show`: the table and the figure again, from journals alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from iblurry.cli.paths import check_figure, run_folders
from iblurry.cli.user_modules import import_option, import_user_modules
from iblurry.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from iblurry.experiment.result import Result


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", type=click.Path(path_type=Path))
@click.option(
    "--figure",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Draw into this .png, .svg or .pdf.  [default: accuracy.png and .svg beside the first run]",
)
@import_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def show(runs: tuple[Path, ...], figure: Path | None, modules: tuple[str, ...], as_json: bool) -> None:
    """Print the table and draw the figure of RUNs: run folders, or folders of them (default: runs).

    Runs that differ only in their seed make one row. Unfinished ones count as far as they got.
    """
    places = runs or (Path("runs"),)
    folders = run_folders(places)
    beside = folders[0].parent / "accuracy.png"
    figures = [figure] if figure is not None else [beside, beside.with_suffix(".svg")]
    for path in figures:
        check_figure(path, f"--figure {path}" if figure else f"The figure {path}")
    import_user_modules(modules)

    from iblurry.cli.results_view import show_results

    try:
        results = [result for folder in folders if (result := _result(folder)) is not None]
    except InputError as error:
        if isinstance(error.__cause__, UnknownNameError):
            raise InputError(f"{error} Parts of your own are known after --import MODULE.") from error
        raise
    if not results:
        raise InputError(
            f"No run in {', '.join(map(str, places))} has come to a query yet; let `iblurry run` go on first."
        )
    show_results(results, figures, as_json=as_json)


def _result(folder: Path) -> Result | None:
    """What a folder holds; None, and a remark, where that is nothing to show yet."""
    from iblurry.experiment.folder import RunFolder
    from iblurry.experiment.result import read_result

    place = RunFolder(folder)
    found = read_result(place) if place.journal.exists() else None
    if found is None or not found.metrics.queries:
        click.echo(f"{folder} has not come to a query yet and is left out.", err=True)
        return None
    return found
