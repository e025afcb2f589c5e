"""`iblurry figure`: a study's finished runs, drawn for a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iblurry.cli.option_groups import GroupedCommand
from iblurry.cli.paths import check_figure
from iblurry.cli.study_options import OPTIONS, RUN_FOLDERS, run_places, runs_option, study_options
from iblurry.cli.user_modules import import_option, import_user_modules
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.studies.selection import Selection
    from iblurry.studies.study import PlannedRun

KINDS = ("curves", "sweep", "bars", "rates", "forgetting", "composition")
METRICS = ("a_auc", "a_avg", "a_last", "f_last")
PLACE = click.Path(path_type=Path)
GROUPS = {"What": (*OPTIONS, "modules"), "Figure": ("runs", "kind", "metric", "out", "as_json")}


@click.command(cls=GroupedCommand, groups=GROUPS)
@study_options(default=None)
@click.option(
    "--kind",
    metavar="KIND",
    type=click.Choice(KINDS),
    help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.  [default: sweep for several columns, bars for the ablation, "
    "else curves]",
)
@click.option(
    "--out",
    metavar="FILE",
    type=PLACE,
    help="A .png, .svg or .pdf.  [default: figures/<study>-<data set>-<kind>.png]",
)
@runs_option
@click.option(
    "--metric", metavar="NAME", type=click.Choice(METRICS), help="a_auc, a_avg, a_last or f_last, for sweep and bars."
)
@import_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def figure(
    study: str,
    select: Callable[[], Selection],
    kind: str | None,
    out: Path | None,
    runs: tuple[Path, ...],
    metric: str | None,
    modules: tuple[str, ...],
    as_json: bool,
) -> None:
    """Draw what is finished of STUDY.

    curves: accuracy to samples seen. sweep: a metric over what the study varies. bars: a metric per method, every seed
    on it. rates: learning rates. forgetting: classes one by one. composition: what the memory holds.
    """
    from iblurry.files import replacing
    from iblurry.studies.figures.draw import check_kind, default_kind, draw_study
    from iblurry.studies.tables.table import tabulate_study

    import_user_modules(modules)
    chosen = select()
    kind = kind or default_kind(chosen.study, len({run.column for run in chosen.planned}))
    check_kind(kind, metric)
    path = out or Path("figures") / f"{_safe(chosen.study.name)}-{_safe(chosen.dataset)}-{kind}.png"
    check_figure(path, f"--out {path}" if out else f"The figure {path}")
    table = tabulate_study(chosen, run_places(runs, chosen), metrics=[metric or chosen.study.metrics[0]])
    drawn = [result for cell in table.cells.values() for result in cell.runs.values()]
    if not drawn:
        raise InputError(_nothing(chosen, runs or RUN_FOLDERS))
    if table.missing:
        click.echo(_missing(chosen.planned, table.missing), err=True)
    with replacing(path) as part:
        draw_study(table, kind, part)
    if as_json:
        about: dict[str, object] = {
            "figure": str(path),
            "study": chosen.study.name,
            "dataset": chosen.dataset,
            "kind": kind,
        }
        about |= {"runs": [str(run.folder) for run in drawn], "missing": [run.experiment.name for run in table.missing]}
        click.echo(json.dumps(about, indent=2))
        return
    click.echo(f"Figure: {path} ({kind}, {len(drawn)} {_plural(len(drawn))})")


def _missing(planned: Sequence[PlannedRun], missing: Sequence[PlannedRun]) -> str:
    """In one line, row by row; a row without a single run has no number."""
    words = []
    for row in dict.fromkeys(one.row for one in missing):
        lacks, all_of_it = (sum(one.row == row for one in some) for some in (missing, planned))
        words.append(row if lacks == all_of_it else f"{row} ({lacks} of {all_of_it})")
    return f"Not there: {len(missing)} of {len(planned)} {_plural(len(planned))}: {', '.join(words)}."


def _nothing(chosen: Selection, folders: Sequence[Path]) -> str:
    where = " or ".join(map(str, folders))
    count = len(chosen.planned)
    return (
        f"None of the {count} {_plural(count)} of the study {chosen.study.name} on {chosen.dataset} is finished in "
        f"{where}; run them first: `{chosen.command()}`."
    )


def _plural(count: int) -> str:
    return "run" if count == 1 else "runs"


def _safe(text: str) -> str:
    return re.sub("[^A-Za-z0-9]+", "-", text).strip("-")
