"""`iblurry figure`: a study's finished runs, drawn for a page."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iblurry.cli.places import check_figure
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.studies.study import Planned, Study

KINDS = ("curves", "sweep", "bars", "rates", "forgetting", "composition")
PLACE = click.Path(path_type=Path)


@click.command()
@click.argument("study")
@click.option("--dataset", metavar="SPEC", help="The data set.  [default: the study's first]")
@click.option(
    "--kind",
    metavar="KIND",
    help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.  [default: sweep for several columns, bars for the ablation, "
    "else curves]",
)
@click.option(
    "--out",
    metavar="FILE",
    type=PLACE,
    help="A .png, .svg or .pdf.  [default: figures/<study>-<data set>-<kind>.png]",
)
@click.option(
    "--runs",
    "places",
    multiple=True,
    metavar="FOLDER",
    type=PLACE,
    help="Where runs are. Repeatable; of a run that is in several, the first counts.  [default: runs, then "
    "results/<data set>]",
)
@click.option("--metric", metavar="NAME", help="a_auc, a_avg, a_last or f_last, for sweep and bars.")
@click.option("--methods", multiple=True, metavar="LIST", help="Rows of the study, separated by commas. Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def figure(
    study: str,
    dataset: str | None,
    kind: str | None,
    out: Path | None,
    places: tuple[Path, ...],
    metric: str | None,
    methods: tuple[str, ...],
    as_json: bool,
) -> None:
    """Draw what is finished of STUDY.

    curves: accuracy to samples seen. sweep: a metric over what the study varies. bars: a metric per method, every seed
    on it. rates: learning rates. forgetting: classes one by one. composition: what the memory holds.
    """
    from iblurry.data.sources.writing import replacing
    from iblurry.studies.catalogue import study_named
    from iblurry.studies.figures.kinds import check, draw, usual_kind
    from iblurry.studies.study import found

    wanted = study_named(study)
    dataset = dataset or wanted.datasets[0]
    planned = wanted.planned(dataset, rows=_rows(wanted, methods))
    kind = kind or usual_kind(wanted, len({one.column for one in planned}))
    check(kind, metric)
    path = out or Path("figures") / f"{_safe(wanted.name)}-{_safe(dataset)}-{kind}.png"
    check_figure(path, f"--out {path}" if out else f"The figure {path}")
    folders = places or (Path("runs"), Path("results") / Path(dataset.partition(":")[0]).stem)
    there = found(planned, folders)
    if not there:
        raise InputError(_nothing(wanted, dataset, planned, folders))
    missing = [one for one in planned if one not in there]
    if missing:
        click.echo(_missing(planned, missing), err=True)
    with replacing(path) as part:
        draw(kind, wanted, there, part, metric=metric)
    if as_json:
        about = {"figure": str(path), "study": wanted.name, "dataset": dataset, "kind": kind}
        runs = [str(result.folder) for result in there.values()]
        click.echo(json.dumps(about | {"runs": runs, "missing": [one.experiment.name for one in missing]}, indent=2))
        return
    click.echo(f"Figure: {path} ({kind}, {len(there)} {_plural(len(there))})")


def _rows(study: Study, given: Sequence[str]) -> list[str] | None:
    """The study's rows in its order; a row may have a comma of its own. None: all of them."""
    words = [word.strip() for text in given for word in ([text] if text in study.rows else text.split(","))]
    named = [word for word in words if word]
    return sorted(dict.fromkeys(named), key=lambda row: study.rows.index(row) if row in study.rows else -1) or None


def _missing(planned: Sequence[Planned], missing: Sequence[Planned]) -> str:
    """In one line, row by row; a row without a single run has no number."""
    words = []
    for row in dict.fromkeys(one.row for one in missing):
        lacks, all_of_it = (sum(one.row == row for one in some) for some in (missing, planned))
        words.append(row if lacks == all_of_it else f"{row} ({lacks} of {all_of_it})")
    return f"Not there: {len(missing)} of {len(planned)} {_plural(len(planned))}: {', '.join(words)}."


def _nothing(study: Study, dataset: str, planned: Sequence[Planned], places: Sequence[Path]) -> str:
    from iblurry.studies.command import command

    first = [one.experiment for one in planned if (one.row, one.column) == (planned[0].row, planned[0].column)]
    begin = command(first) or f"Experiment.of({planned[0].row!r}, {dataset!r})"
    where = " or ".join(map(str, places))
    return (
        f"None of the {len(planned)} {_plural(len(planned))} of the study {study.name} on {dataset} is finished in "
        f"{where}; run some of them first, such as `{begin}`."
    )


def _plural(count: int) -> str:
    return "run" if count == 1 else "runs"


def _safe(text: str) -> str:
    return re.sub("[^A-Za-z0-9]+", "-", text).strip("-")
