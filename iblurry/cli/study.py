"""`iblurry study`, `table` and `figure`: what is behind a table or a figure of the paper is run, tabulated, drawn."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli import options
from iblurry.cli.run import check_all, run_with_bars, say_stopped
from iblurry.cli.verbs import FAILED
from iblurry.errors import IblurryError, InputError
from iblurry.studies.shipped import PARTS, shipped_results

if TYPE_CHECKING:
    from iblurry.analysis.table import Table
    from iblurry.data.dataset import Dataset
    from iblurry.launch.config import LaunchConfig
    from iblurry.studies.selection import Selection
    from iblurry.studies.study import PlannedRun

LIST = "list"
PACK = 3  # runs side by side on a GPU unless told
RUN_FOLDERS = (options.RUNS, Path("results"), shipped_results())  # searched unless --runs is given
KINDS = ("curves", "sweep", "bars", "flops", "rates", "forgetting", "composition")
AXES = ("samples", "flops")
METRICS = ("a_auc", "a_avg", "a_last", "f_last", "aaa", "min_acc", "wc_acc", "forgetting")
ENDINGS = {".txt": "text", ".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}
FORMATS = ("terminal", *ENDINGS.values())
STUDY_EXAMPLES = """\b
Examples:
  iblurry study list
  iblurry study main --dataset digits
  iblurry study main --dataset digits --dry-run
  iblurry study memory --dataset cifar10 --methods clib,er --scale 0.1
  iblurry study main --dataset digits --on ray
"""
TABLE_EXAMPLES = """\b
Examples:
  iblurry table main --dataset cifar10
  iblurry table main --methods clib,er,clib-balanced --pairs
  iblurry table main --format latex --no-paper --out main.tex
  iblurry table leaderboard --against balm --page leaderboard.md
"""


def _one_of(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


SELECTION = options.declare(
    {
        "dataset": ("SPEC", None, "See `iblurry data`.  [default: the study's first]"),
        "methods": ("LIST", None, "Rows, of any methods: clib,er.  [default: the study's]"),
        "only": ("LIST", None, "Columns: N=0,N=50.  [default: all]"),
        "seeds": ("LIST", options.Seeds(), "One run for each, as 1,2,3 or 1-3."),
        "scale": ("P", click.FloatRange(0, 1, min_open=True), "Part of the stream."),
        "stream": ("NAME", None, "Instead of i-Blurry: Gaussian, Listed, ..., as NAME:field=value."),
        "published": ("FOLDER", options.PLACE, "Take the order from published split files."),
        "equal_compute": ("METHOD", None, "All with the training FLOPs of this row."),
        "equal_bytes": ("METHOD", None, "All with the memory that holds the bytes of this row."),
    },
    many=("methods", "only"),
    seeds="1-3",
    scale=1.0,
) | {"data_home": options.data_home_option}
study_argument = click.argument("study")
runs_option = click.option(
    "--runs",
    multiple=True,
    metavar="FOLDER",
    type=options.PLACE,
    help="Folders of runs. Repeatable; the first that has a run counts.  [default: runs, results, the package's]",
)


def _select(given: Mapping[str, Any], *, dataset: str | None = None, out: Path | None = None) -> Selection:
    """What of the study is chosen; without --dataset on this one, or on the study's first."""
    from iblurry.studies.catalogue import get_study
    from iblurry.studies.selection import Selection

    study = get_study(given["study"])
    names = ("seeds", "scale", "stream", "published", "equal_compute", "equal_bytes", "data_home")
    return Selection(
        study=study,
        dataset=given["dataset"] or dataset or study.datasets[0],
        rows=options.split_names(given["methods"], study.rows),
        columns=options.split_names(given["only"]),
        out=out,
        **{name: given[name] for name in names},
    )


# --------------------------------------------------------------------------------------------------------------- study


@click.command(
    cls=options.GroupedCommand,
    groups={
        "What": (*SELECTION, "modules", "callbacks"),
        "Places": ("out", "dry_run", "as_json"),
        "Machine (nothing here is part of the experiments)": ("on", *options.MACHINE),
    },
    epilog=STUDY_EXAMPLES,
)
@study_argument
@options.add(SELECTION | options.declare({"dataset": ("SPEC", None, "See `iblurry data`.")}, dataset="digits"))
@options.import_option
@options.callback_option
@click.option("--out", type=options.OutputFolder(), default=options.RUNS, help="Folder of the runs.")
@click.option("--on", metavar="PLACE", default="local", help="local, or ray: a cluster.")
@options.add(options.machine_options(jobs="one per core; a pack per GPU", pack=f"{PACK}; 1 with --jobs"))
@click.option("--dry-run", is_flag=True, help="List the runs and run nothing.")
@options.json_option
def study(callbacks: tuple[str, ...], out: Path, dry_run: bool, as_json: bool, **given: Any) -> int:
    """Run the missing runs of a STUDY and print its table; `list` names them all.

    A bar shows the time left. A run that fails does not stop the others. The same command continues interrupted
    runs.
    """
    if given["study"] == LIST:
        _list(as_json=as_json)
        return 0
    options.say_at_once(f"Loading PyTorch, then {given['dataset']}.")

    from iblurry.data.load import load

    chosen = _select(given, out=None if out == options.RUNS else out)
    own = options.parse_callbacks(callbacks)
    once = {one.experiment.name: one for one in chosen.planned}
    experiments, data = [one.experiment for one in once.values()], load(chosen.dataset, chosen.data_home)
    check_all(experiments, data)
    config = _packed(options.launch_config(given | {"out": out}), experiments, is_told=given["pack"] is not None)
    done = sum(map(config.is_done, experiments))
    title = f"{chosen.study.name} on {chosen.dataset}"
    click.echo(f"{title}: {len(once) - done} of {len(once)} runs to do, {done} done and kept.", err=True)
    if dry_run:
        _show_plan(chosen, once, config, data, as_json=as_json)
        return 0
    failures = dict[str, IblurryError]()
    named = {" ".join(filter(None, [one.row, one.column, f"seed {one.experiment.seed}"])): one for one in once.values()}
    runs = run_with_bars(title, {name: one.experiment for name, one in named.items()}, config, own, failures)
    finished = {run.experiment.name for run in runs if run.summary is not None}
    return _tell(chosen, finished, failures, out, as_json=as_json)


def _packed(config: LaunchConfig, experiments: Sequence[Any], *, is_told: bool) -> LaunchConfig:
    """Who says how many --jobs means runs, one to a process; who says nothing gets packs on a GPU, where they gain."""
    if is_told or config.jobs is not None or all(config.device_for(one) == "cpu" for one in experiments):
        return config
    return replace(config, pack=PACK)


def _show_plan(
    selection: Selection, once: Mapping[str, PlannedRun], config: LaunchConfig, data: Dataset, *, as_json: bool
) -> None:
    """Which runs are to do, by row and column, and the operations of their training, on standard output."""
    from iblurry.analysis.compute import size_of, training_flops
    from iblurry.analysis.describe import operations
    from iblurry.analysis.formats import rich_grid

    cells = {(one.row, one.column): {"to_do": 0, "done": 0, "training_flops": 0.0} for one in selection.planned}
    for one in once.values():
        cell, is_done = cells[one.row, one.column], config.is_done(one.experiment)
        cell["done" if is_done else "to_do"] += 1
        if not is_done:  # a list of samples may be shorter than the data
            cut = replace(one.experiment, samples=len(one.experiment.order(data)))
            cell["training_flops"] += training_flops(cut, size_of(data))
    rows = [{"row": row, "column": column} | cell for (row, column), cell in cells.items()]
    about = {"study": selection.study.name, "dataset": selection.dataset}
    total = {name: sum(cell[name] for cell in cells.values()) for name in ("to_do", "done")}
    columns = ["column"] if any(column for _, column in cells) else []
    counts = [(f"{cell['to_do']}", f"{cell['done']}", operations(cell["training_flops"])) for cell in cells.values()]
    lines = [(*place[: 1 + len(columns)], *count) for place, count in zip(cells, counts, strict=True)]
    heads, sides = ["row", *columns, "to do", "done", "training"], "l" * (1 + len(columns)) + "rrr"
    grid = rich_grid(heads, lines, shutil.get_terminal_size().columns, sides=sides, bold=False)
    options.tell(about | total | {"rows": rows}, grid, as_json=as_json)


def _tell(
    selection: Selection, finished: set[str], failures: dict[str, IblurryError], out: Path, *, as_json: bool
) -> int:
    from iblurry.analysis.formats import FORMATS
    from iblurry.studies.table import tabulate_study

    form = "json" if as_json else "terminal" if sys.stdout.isatty() else "text"
    click.echo(FORMATS[form](tabulate_study(selection, [out]), None), nl=False)
    for name, error in failures.items():
        click.echo(f"iblurry: {name} failed: {error}", err=True)
    if {one.experiment.name for one in selection.planned} - finished - failures.keys():
        return say_stopped(out)
    return FAILED if failures else 0


def _list(*, as_json: bool) -> None:
    from iblurry.studies.catalogue import STUDIES

    fields = ("name", "title", "shows", "question", "datasets", "rows", "metrics")
    lines = []
    for one in STUDIES.values():
        columns = [column for column in one.columns(one.datasets[0]) if column]
        lines += [
            f"{one.name} - {', '.join(one.shows) or 'not in the paper'}",
            f"  {one.title}: {one.question}",
            f"  rows  {', '.join(one.rows)}",
            f"  data  {', '.join(one.datasets)}" + (f"; {', '.join(columns)}" if columns else ""),
        ]
    about = [{field: getattr(one, field) for field in fields} for one in STUDIES.values()]
    options.tell(about, "\n".join(lines), as_json=as_json)


# -------------------------------------------------------------------------------------------------------- finished runs


def _run_places(runs: Sequence[Path], selection: Selection) -> list[Path]:
    """Where to look for runs: in the folders, and in their parts for the data set that `dev collect` makes."""
    from iblurry.studies.collect import dataset_folder

    for folder in runs:
        if not folder.is_dir():
            raise InputError(f"--runs {folder}: there is no such folder; name one that `iblurry run` wrote to.")
        if (folder / "experiment.json").exists():
            raise InputError(f"--runs {folder} is a run; name the folder that holds it, {folder.parent}.")
    folders = runs or [folder / part for folder in RUN_FOLDERS for part in PARTS]
    return [place for folder in folders for place in (folder, dataset_folder(folder, selection.dataset))]


def _tabulate(selection: Selection, runs: Sequence[Path], **how: Any) -> Table:
    from iblurry.studies.table import tabulate_study

    return tabulate_study(selection, _run_places(runs, selection), **how)


@click.command(
    cls=options.GroupedCommand,
    groups={
        "What": (*SELECTION, "modules"),
        "Table": ("runs", "metric", "paper", "pairs", "against"),
        "Form": ("form", "as_json", "out", "page"),
    },
    epilog=TABLE_EXAMPLES,
)
@study_argument
@options.add(SELECTION)
@runs_option
@click.option(
    "--metric",
    multiple=True,
    metavar="LIST",
    help="a_auc, f_last, aaa, min_acc, wc_acc, forgetting, compute, ..., or your callbacks': mine, mine:mean.  "
    "[default: the study's]",
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
@click.option("--out", type=options.OutputFile(), help="Write into this file instead: .txt, .md, .tex, .csv, .json.")
@click.option("--page", type=options.OutputFile(), help="Write a Markdown page with figures, table and commands.")
@options.import_option
def table(
    runs: tuple[Path, ...],
    metric: tuple[str, ...],
    paper: bool,
    pairs: bool,
    against: str | None,
    form: str | None,
    as_json: bool,
    out: Path | None,
    page: Path | None,
    **given: Any,
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

    if form == "terminal" and (out is not None or not sys.stdout.isatty()):
        form = "text"  # there is no bold there
    made = _tabulate(_select(given), runs, metrics=options.split_names(metric), paper=paper)
    compared = compare_rows(made, against) if pairs or against else None
    if page is not None:
        from iblurry.studies.table import write_page

        click.echo("Wrote " + ", ".join(str(path) for path in write_page(made, page, compared)))
        return
    text = WRITERS[form](made, compared)
    if out is None:
        click.echo(text, nl=False)
        return
    with replacing(out) as part:
        part.write_text(text, "utf-8")
    click.echo(f"{out}: {len(made.cells)} cells, {len(made.about['missing'])} runs missing")


@click.command(
    cls=options.GroupedCommand,
    groups={"What": (*SELECTION, "modules"), "Figure": ("runs", "kind", "x", "metric", "out", "as_json")},
)
@study_argument
@options.add(SELECTION)
@click.option(
    "--kind",
    metavar="KIND",
    type=click.Choice(KINDS),
    help=f"{_one_of(KINDS)}.  [default: sweep for several columns, bars for the ablation, else curves]",
)
@click.option("--x", metavar="NAME", type=click.Choice(AXES), help="samples or flops (of training), for curves.")
@click.option(
    "--out", type=options.FIGURE, help="A .png, .svg or .pdf.  [default: in figures/, named by what it shows]"
)
@runs_option
@click.option(
    "--metric", metavar="NAME", type=click.Choice(METRICS), help=f"{_one_of(METRICS)}, for sweep, bars and flops."
)
@options.import_option
@options.json_option
def figure(
    kind: str | None,
    x: str | None,
    out: Path | None,
    runs: tuple[Path, ...],
    metric: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Draw the finished runs of STUDY.

    curves: accuracy to samples seen, or to training FLOPs. sweep: a metric over what the study varies. bars: a metric
    per method, every seed on it. flops: a metric against training FLOPs, a point per method. rates: learning rates.
    forgetting: classes one by one. composition: what the memory holds.
    """
    from iblurry.analysis.figures.draw import WITH_METRIC, WITH_X, check_kind, default_kind, draw_study
    from iblurry.storage.files import replacing

    chosen = _select(given)
    columns = list(dict.fromkeys(run.column for run in chosen.planned))
    kind = kind or (WITH_X[0] if x else default_kind(chosen.study.name, len(columns)))
    check_kind(chosen.study.name, columns, kind)
    if metric is not None and kind not in WITH_METRIC:
        others = " or ".join(WITH_METRIC)
        raise InputError(f"A figure of {kind} shows no metric; leave {metric} out, or draw {others}.")
    if x is not None and kind not in WITH_X:
        raise InputError(f"A figure of {kind} has a fixed axis; leave --x {x} out, or draw {' or '.join(WITH_X)}.")
    shown = [
        kind,
        *([x] if x not in (None, AXES[0]) else []),
        *([metric.replace("_", "-")] if metric not in (None, chosen.study.metrics[0]) else []),
    ]
    path = out or Path("figures") / f"{chosen.slug}-{'-'.join(shown)}.png"
    options.FIGURE.convert(path, None, None)
    made = _tabulate(chosen, runs, metrics=[metric or chosen.study.metrics[0]])
    drawn = [run for *_, run in made.all_runs]
    if not drawn:
        searched = " or ".join(map(str, runs or RUN_FOLDERS))
        raise InputError(
            f"No run of the study {chosen.study.name} on {chosen.dataset} is finished in {searched}; run some first: "
            f"`{chosen.command()}`."
        )
    for sentence in made.order_notes:
        click.echo(sentence, err=True)
    lacking = [one["run"] for one in made.about["missing"]]
    if lacking:
        missing = f"{len(lacking)} of {len(chosen.planned)} runs are missing"
        click.echo(f"{missing}: {'; '.join(made.missing_words)}.", err=True)
    with replacing(path) as part:
        draw_study(made, kind, part, x=x or AXES[0])
    about = {
        "figure": str(path),
        "study": chosen.study.name,
        "dataset": chosen.dataset,
        "kind": kind,
        "x": (x or AXES[0]) if kind in WITH_X else None,
        "runs": [str(run.folder) for run in drawn],
        "missing": lacking,
    }
    options.tell(about, f"Figure: {path} ({kind}, runs: {len(drawn)})", as_json=as_json)
