"""`iblurry figure`: a study's finished runs, drawn for a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from iblurry.cli.options import FIGURE, GroupedCommand, import_option, json_option
from iblurry.cli.study_options import OPTIONS, RUN_FOLDERS, run_places, runs_option, selection_of, study_options
from iblurry.errors import InputError

KINDS = ("curves", "sweep", "bars", "flops", "rates", "forgetting", "composition")
AXES = ("samples", "flops")
METRICS = ("a_auc", "a_avg", "a_last", "f_last", "aaa", "min_acc", "wc_acc", "forgetting")
GROUPS = {"What": (*OPTIONS, "modules"), "Figure": ("runs", "kind", "x", "metric", "out", "as_json")}


@click.command(cls=GroupedCommand, groups=GROUPS)
@study_options(default=None)
@click.option(
    "--kind",
    metavar="KIND",
    type=click.Choice(KINDS),
    help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.  [default: sweep for several columns, bars for the ablation, "
    "else curves]",
)
@click.option("--x", metavar="NAME", type=click.Choice(AXES), help="samples or flops (of training), for curves.")
@click.option("--out", type=FIGURE, help="A .png, .svg or .pdf.  [default: in figures/, named by what it shows]")
@runs_option
@click.option(
    "--metric",
    metavar="NAME",
    type=click.Choice(METRICS),
    help=f"{', '.join(METRICS[:-1])} or {METRICS[-1]}, for sweep, bars and flops.",
)
@import_option
@json_option
def figure(
    selected: dict[str, Any],
    kind: str | None,
    x: str | None,
    out: Path | None,
    runs: tuple[Path, ...],
    metric: str | None,
    as_json: bool,
) -> None:
    """Draw the finished runs of STUDY.

    curves: accuracy to samples seen, or to training FLOPs. sweep: a metric over what the study varies. bars: a metric
    per method, every seed on it. flops: a metric against training FLOPs, a point per method. rates: learning rates.
    forgetting: classes one by one. composition: what the memory holds.
    """
    from iblurry.analysis.figures.draw import WITH_METRIC, WITH_X, check_kind, default_kind, draw_study
    from iblurry.storage.files import replacing
    from iblurry.studies.table import tabulate_study

    chosen = selection_of(selected)
    columns = list(dict.fromkeys(run.column for run in chosen.planned))
    kind = kind or (WITH_X[0] if x else default_kind(chosen.study.name, len(columns)))
    check_kind(chosen.study.name, columns, kind)
    if metric is not None and kind not in WITH_METRIC:
        others = " or ".join(WITH_METRIC)
        raise InputError(f"A figure of {kind} shows no metric; leave {metric} out, or draw {others}.")
    if x is not None and kind not in WITH_X:
        raise InputError(f"A figure of {kind} has a fixed axis; leave --x {x} out, or draw {' or '.join(WITH_X)}.")
    shown = "-".join(
        [
            kind,
            *([x] if x not in (None, AXES[0]) else []),
            *([metric.replace("_", "-")] if metric not in (None, chosen.study.metrics[0]) else []),
        ]
    )
    path = out or Path("figures") / f"{chosen.slug}-{shown}.png"
    FIGURE.convert(path, None, None)
    table = tabulate_study(chosen, run_places(runs, chosen), metrics=[metric or chosen.study.metrics[0]])
    drawn = [run for *_, run in table.all_runs]
    if not drawn:
        searched = " or ".join(map(str, runs or RUN_FOLDERS))
        raise InputError(
            f"No run of the study {chosen.study.name} on {chosen.dataset} is finished in {searched}; run some first: "
            f"`{chosen.command()}`."
        )
    for sentence in table.order_notes:
        click.echo(sentence, err=True)
    if table.missing:
        missing = f"{len(table.missing)} of {len(chosen.planned)} runs are missing"
        click.echo(f"{missing}: {'; '.join(table.missing_words)}.", err=True)
    with replacing(path) as part:
        draw_study(table, kind, part, x=x or AXES[0])
    if as_json:
        about = {
            "figure": str(path),
            "study": chosen.study.name,
            "dataset": chosen.dataset,
            "kind": kind,
            "x": (x or AXES[0]) if kind in WITH_X else None,
            "runs": [str(run.folder) for run in drawn],
            "missing": [run.experiment.name for run in table.missing],
        }
        click.echo(json.dumps(about, indent=2))
        return
    click.echo(f"Figure: {path} ({kind}, runs: {len(drawn)})")
