"""`iblurry report`: one page of all runs in a folder, whole in one file."""

from __future__ import annotations

from pathlib import Path

import click

from iblurry.cli.options import PLACE, RUNS, OutputFile, import_option, json_option, tell


@click.command()
@click.argument("runs", metavar="[DIR]", type=PLACE, default=RUNS)
@click.option("--out", type=OutputFile(".html", ".htm"), default="report.html", help="The page.")
@click.option("--title", metavar="TEXT", help="Its heading.  [default: the study's, or the data sets]")
@click.option("--study", "name", metavar="NAME", help="Only the runs of this study, and what it still lacks.")
@import_option
@json_option
def report(runs: Path, out: Path, title: str | None, name: str | None, as_json: bool) -> None:
    """Write one HTML page of the runs in DIR: a folder of them, or of data sets of them (default: runs).

    Tables that sort, curves, maps of the classes, compute, the paper's numbers, settings, versions, links to the runs;
    finished runs and unfinished ones. The file holds everything it shows and asks no network.
    """
    from iblurry.storage.files import replacing
    from iblurry.studies.catalogue import get_study
    from iblurry.studies.report import render_page, report_data

    data = report_data(runs, title=title, study=get_study(name) if name is not None else None)
    text = render_page(data, out.resolve().parent).encode(
        "utf-8", "replace"
    )  # half a character in somebody's label is no reason to fail
    with replacing(out) as part:
        part.write_bytes(text)
    about = {"page": str(out), "bytes": len(text), "runs": len(data.runs), "finished": data.finished}
    said = f"{out}: {data.finished} finished runs of {len(data.runs)}, {len(text) / 1000:,.0f} kB"
    tell(about, said, as_json=as_json)
