"""`iblurry dev reproduction`: a page that compares collected runs with the paper's numbers."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from iblurry.cli.options import PLACE, OutputFile, import_option

NOTES = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("results", required=False, metavar="[RESULTS]", type=PLACE, default="results")
@click.option(
    "--out",
    type=OutputFile(".md"),
    default="docs/reproduction.md",
    help="The page; its figures go to images/ beside it.",
)
@click.option("--notes", metavar="FILE", type=NOTES, help="Prose for the page.  [default: <out>-notes.md]")
@import_option
@click.option("--json", "as_json", is_flag=True, help="Print the comparisons as JSON too.")
def reproduction(results: Path, out: Path, notes: Path | None, as_json: bool) -> None:
    """Set the runs that `iblurry dev collect` put into RESULTS (default: results) beside the paper's tables.

    Paper, ours, the difference, its standard error and a verdict per method, the curves, and the command of every run.
    RESULTS/<data set>/notes.toml says why numbers differ; runs in RESULTS/noise that repeat others in another place say
    what rounding alone does. Needs no GPU.
    """
    from iblurry.analysis.noise import find_noise
    from iblurry.storage.files import replacing
    from iblurry.studies.collect import read_collected, read_repeats
    from iblurry.studies.compare import compare_with_paper
    from iblurry.studies.notes import read_notes
    from iblurry.studies.reproduction import draw_blocks, reproduction_page

    beside = notes or out.with_name(f"{out.stem}-notes.md")
    runs = read_collected(results)
    blocks, noise = compare_with_paper(runs), find_noise([*runs, *read_repeats(results)])
    prose = beside.read_text("utf-8") if beside.is_file() else ""
    text = reproduction_page(blocks, noise=noise, notes=read_notes(results), prose=prose, stem=out.stem)
    figures = draw_blocks(blocks, out.parent / "images", stem=out.stem)
    with replacing(out) as part:
        part.write_text(text, "utf-8")
    if as_json:
        rows = [
            {
                "configuration": asdict(block.configuration),
                "metric": metric,
                "difference": comparison.difference,
                "standard_error": comparison.standard_error,
            }
            | asdict(comparison)
            for block in blocks
            for metric, comparisons in block.comparisons.items()
            for comparison in comparisons
        ]
        click.echo(json.dumps({"page": str(out), "figures": list(map(str, figures)), "rows": rows}, indent=2))
        return
    click.echo(f"{out}: {len(runs)} runs compared with the paper")
    for path in figures:
        click.echo(f"Figure: {path}")
