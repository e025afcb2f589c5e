"""`iblurry report`: one page of all runs in a folder, whole in one file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from iblurry.cli.paths import check_folder
from iblurry.cli.user_modules import import_option, import_user_modules
from iblurry.errors import InputError, UnknownNameError

PLACE = click.Path(path_type=Path)


@click.command()
@click.argument("runs", metavar="[DIR]", type=PLACE, default="runs")
@click.option("--out", metavar="FILE", type=PLACE, default="report.html", show_default=True, help="The page.")
@click.option("--title", metavar="TEXT", help="Its heading.  [default: the study's, or the data sets]")
@click.option("--study", "name", metavar="NAME", help="Only the runs of this study, and what it still lacks.")
@import_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def report(runs: Path, out: Path, title: str | None, name: str | None, modules: tuple[str, ...], as_json: bool) -> None:
    """Write one HTML page of the runs in DIR: a folder of them, or of data sets of them (default: runs).

    Tables, curves to zoom into, maps of the classes, the paper's numbers, settings, versions, commands; finished runs
    and unfinished ones. The file holds everything it shows and asks no network.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {out}: the page is HTML; end its name in .html.")
    if out.is_dir():
        raise InputError(f"--out {out} is a folder; give the name of a file.")
    check_folder(out.parent, f"--out {out}")
    import_user_modules(modules)

    from iblurry.files import replacing
    from iblurry.studies.catalogue import get_study
    from iblurry.studies.report.data import report_data
    from iblurry.studies.report.page import render_page

    study = get_study(name) if name is not None else None
    try:
        data = report_data(runs, title=title, study=study)
    except InputError as error:
        if isinstance(error.__cause__, UnknownNameError):
            raise InputError(f"{error} Parts of your own are known after --import MODULE.") from error
        raise
    text = render_page(data).encode("utf-8", "replace")  # half a character in somebody's label is no reason to fail
    with replacing(out) as part:
        part.write_bytes(text)
    if as_json:
        about = {"page": str(out), "bytes": len(text), "runs": len(data.runs), "finished": data.finished}
        click.echo(json.dumps(about, indent=2))
        return
    click.echo(f"{out}: {data.finished} finished runs of {len(data.runs)}, {len(text) / 1000:,.0f} kB")
