"""`iblurry dev`: what maintainers of the package do with finished runs, to keep results beside the code."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from iblurry.cli.options import PLACE, OutputFile, OutputFolder, import_option, json_option, runs_argument, tell
from iblurry.cli.verbs import Verbs
from iblurry.errors import InputError

NOTES = click.Path(exists=True, dir_okay=False, path_type=Path)


VERBS = {
    "collect": "Keep finished runs as a few small texts each.",
    "reproduction": "Compare collected runs with the paper's tables, on a page.",
}
dev = Verbs(
    "dev",
    package="iblurry.cli",
    verbs=VERBS,
    files=dict.fromkeys(VERBS, "dev"),
    help="For maintainers: results that are kept beside the code.",
)


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
    lines = [f"{place}: {state}" for place, state in copies]
    tell([{"folder": str(place), "is": state} for place, state in copies], "\n".join(lines), as_json=as_json)


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
    from iblurry.storage.files import replacing
    from iblurry.studies.collect import read_collected, read_repeats
    from iblurry.studies.paper import compare_with_paper
    from iblurry.studies.reproduction import draw_blocks, read_notes, reproduction_page

    beside = notes or out.with_name(f"{out.stem}-notes.md")
    runs = read_collected(results)
    blocks, repeats = compare_with_paper(runs), [*runs, *read_repeats(results)]
    prose = beside.read_text("utf-8") if beside.is_file() else ""
    text = reproduction_page(blocks, repeats=repeats, notes=read_notes(results), prose=prose, stem=out.stem)
    figures = [str(path) for path in draw_blocks(blocks, out.parent / "images", stem=out.stem)]
    with replacing(out) as part:
        part.write_text(text, "utf-8")
    rows = [
        {"configuration": asdict(block.configuration)}
        | line
        | {side: line[side] and asdict(line[side]) for side in ("paper", "ours")}
        for block in blocks
        for line in block.comparisons.drop(columns="misses").to_dict("records")
    ]
    lines = [f"{out}: {len(runs)} runs compared with the paper", *(f"Figure: {path}" for path in figures)]
    tell({"page": str(out), "figures": figures, "rows": rows}, "\n".join(lines), as_json=as_json)
