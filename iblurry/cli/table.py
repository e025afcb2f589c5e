"""`iblurry table`: the table of a study from finished runs, beside the paper's, in the form that is wanted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from iblurry.cli.options import GroupedCommand, OutputFile, import_option, metric_option
from iblurry.cli.study_options import OPTIONS, run_places, runs_option, selection_of, split_names, study_options
from iblurry.errors import InputError

ENDINGS = {".txt": "text", ".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}
FORMATS = ("terminal", *ENDINGS.values())
GROUPS = {
    "What": (*OPTIONS, "modules"),
    "Table": ("runs", "metric", "paper", "pairs", "against"),
    "Form": ("form", "as_json", "out", "page"),
}
EXAMPLES = """\b
Examples:
  iblurry table main --dataset cifar10
  iblurry table main --methods clib,er,clib-balanced --pairs
  iblurry table main --format latex --no-paper --out main.tex
  iblurry table leaderboard --against balm --page leaderboard.md
"""


@click.command(cls=GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@study_options(default=None)
@runs_option
@metric_option(
    "a_auc, f_last, aaa, min_acc, wc_acc, forgetting, compute, ..., or your callbacks': mine, mine:mean.",
    "the study's",
)
@click.option("--paper/--no-paper", default=True, help="The paper's numbers beside ours.")
@click.option("--pairs", is_flag=True, help="Compare the best row with each other, seed by seed.")
@click.option("--against", metavar="METHOD", help="Compare each row with this one instead; implies --pairs.")
@click.option(
    "--format",
    "form",
    metavar="NAME",
    type=click.Choice(FORMATS),
    help=f"{', '.join(FORMATS)}.  [default: by --out; terminal]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--out", type=OutputFile(), help="Write into this file instead: .txt, .md, .tex, .csv, .json.")
@click.option("--page", type=OutputFile(), help="Write a Markdown page with figures, table and commands.")
@import_option
def table(
    selected: dict[str, Any],
    runs: tuple[Path, ...],
    metric: tuple[str, ...],
    paper: bool,
    pairs: bool,
    against: str | None,
    form: str | None,
    as_json: bool,
    out: Path | None,
    page: Path | None,
) -> None:
    """Print the table of a STUDY from its finished runs: mean ± std over seeds, and the paper's.

    A row without runs on the orders of STUDY uses those on other orders, such as the paper's own; a note says so. What
    has not been run yet is named, with the command that runs it.
    """
    if as_json and form not in (None, "json"):
        raise InputError(f"--json and --format {form} are two formats; give one of them.")
    form = form or ("json" if as_json else "terminal" if out is None else ENDINGS.get(out.suffix.lower()))
    if form is None:
        raise InputError(
            f"--out {out}: its ending is not a known format; use one of {', '.join(ENDINGS)}, or add --format."
        )

    from iblurry.analysis.formats import FORMATS as WRITERS
    from iblurry.analysis.significance import compare_rows
    from iblurry.storage.files import replacing
    from iblurry.studies.table import tabulate_study

    chosen = selection_of(selected)
    if form == "terminal" and (out is not None or not sys.stdout.isatty()):
        form = "text"  # there is no bold there
    made = tabulate_study(chosen, run_places(runs, chosen), metrics=split_names(metric), paper=paper)
    compared = compare_rows(made, against) if pairs or against else None
    if page is not None:
        from iblurry.studies.page import write_page

        click.echo("Wrote " + ", ".join(str(path) for path in write_page(made, page, compared)))
        return
    text = WRITERS[form](made, compared)
    if out is None:
        click.echo(text, nl=False)
        return
    with replacing(out) as part:
        part.write_text(text, "utf-8")
    click.echo(f"{out}: {len(made.cells)} cells, {len(made.missing)} runs missing")
