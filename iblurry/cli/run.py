"""`iblurry run`: experiments, one per method and seed, or the points of a grid; then the table and the figure."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli import options
from iblurry.cli.verbs import FAILED, INTERRUPTED
from iblurry.errors import IblurryError, InputError

if TYPE_CHECKING:
    from iblurry.data.dataset import Dataset
    from iblurry.experiment.callback import Callback
    from iblurry.experiment.experiment import Experiment
    from iblurry.experiment.result import Result
    from iblurry.launch.config import LaunchConfig
    from iblurry.studies.search.points import PointResult, SearchPoint

DEFAULT_METHODS = ("balm", "clib", "er")
DEFAULT_SEEDS = (1, 2, 3)
ELSEWHERE = {"dataset": "--dataset", "seed": "--seeds", "method": "the METHOD argument"}  # what --set cannot change
GROUPS = {
    "Stream": options.STREAM,
    "Learning (defaults are the paper's for the data set)": (*options.LEARNING, "grids", "modules"),
    "Table": ("callbacks", "metric"),
    "Places": ("out", "figure", "data_home", "as_json"),
    "Machine (nothing here is part of the experiment)": options.MACHINE,
}
EXAMPLES = """\b
Examples:
  iblurry run
  iblurry run clib er --disjoint 50 --blur 30 --memory 200 --seeds 1-5
  iblurry run clib --set admission=Balanced --set schedule.initial_lr=0.001
  iblurry run er "er schedule.initial_lr=0.001" "er memory=50"
  iblurry run clib --grid schedule.initial_lr=1e-4,3e-4 --grid memory=50,100
  iblurry run clib --import mine.py --set admission=Mine
  iblurry run clib --import worst.py --callback Worst --metric a_auc,worst
"""


@click.command(cls=options.GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@click.argument("methods", nargs=-1, metavar="[METHOD]...")
@options.add(options.STREAM | options.LEARNING)
@click.option(
    "--grid",
    "grids",
    multiple=True,
    metavar="PATH=V1,V2,...",
    help="Run every value, of several grids every combination, and name the best on held-out training images.",
)
@options.import_option
@options.callback_option
@options.metric_option
@click.option("--out", type=options.OutputFolder(), default=options.RUNS, help="Folder of the runs.")
@options.figure_option
@options.data_home_option
@options.add(options.machine_options(jobs="one per core; 1 on a GPU", pack="1"))
@options.json_option
def run(
    methods: tuple[str, ...],
    grids: tuple[str, ...],
    callbacks: tuple[str, ...],
    metric: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> int:
    """Run METHODs (default: balm clib er) on a stream; print the table, draw the figure.

    A METHOD with changes, in the form of --set, is one word in quotes. The same command continues interrupted runs
    and keeps finished ones.
    """
    options.say_at_once(f"Loading PyTorch, then {given['dataset']}.")
    rows = methods or DEFAULT_METHODS
    if grids:
        if callbacks or metric:
            raise InputError(
                "--grid ranks by A_AUC only; run the values it chooses with --set and your --callback or --metric."
            )
        return _run_grid(rows, given, grids, as_json=as_json)
    named = {f"{row} seed {seed}": one for (row, seed), one in make_experiments(rows, given).items()}
    experiments, out = list(named.values()), given["out"]
    from iblurry.analysis.describe import name_figure
    from iblurry.cli.show import show_results
    from iblurry.data.load import load

    config = options.launch_config(given)
    own, metrics = options.parse_callbacks(callbacks), options.split_names(metric)
    _check_metrics(metrics or (), own, [] if config.again else [out / one.name for one in experiments])
    check_all(experiments, load(given["dataset"], given["data_home"]))
    results = run_with_bars("all runs", named, config, own)
    if len(results) < len(experiments) or any(result.summary is None for result in results):
        return say_stopped(out)
    stem = name_figure(experiments, DEFAULT_METHODS, DEFAULT_SEEDS)
    show_results(results, figure_files(given, stem), metrics=metrics, as_json=as_json)
    return 0


def make_experiments(rows: Sequence[str], given: Mapping[str, Any]) -> dict[tuple[str, int], Experiment]:
    """Makes experiments by row and seed; a row is a method, or a method and changes of its own, which come after
    those of --set.
    """
    from iblurry.components.edit import edit
    from iblurry.experiment.experiment import Experiment

    fields = {name: given[name] for name in experiment_options(given) if name not in ("dataset", "seeds", "changes")}
    fields |= {"stream": options.parse_stream(fields["stream"])} if "stream" in fields else {}
    experiments = {}
    for row in rows:
        if rows.count(row) > 1:
            raise InputError(f"The method {row} is named {rows.count(row)} times; name each once.")
        method, *own = row.split() or [""]
        if "=" in method:
            raise InputError(f"{row!r} is a change without a method; write both in quotes: 'er {row}'.")
        for change in (*given["changes"], *own):
            name = change.partition("=")[0].strip()
            if name in ELSEWHERE:
                raise InputError(f"{change}: {name} is not set this way; use {ELSEWHERE[name]}.")
        for seed in given["seeds"]:
            experiment = Experiment.of(method, given["dataset"], seed=seed, **fields)
            experiments[row, seed] = edit(experiment, *given["changes"], *own)
    if len({experiment.digest for experiment in experiments.values()}) < len(experiments):
        raise InputError(f"With these changes, {' and '.join(rows)} become the same experiment; name one of them.")
    return experiments


def experiment_options(given: Mapping[str, Any]) -> list[str]:
    """The names of the options about experiments that were given."""
    return [name for name in (*options.STREAM, *options.LEARNING) if given[name] is not None]


def check_all(experiments: Sequence[Experiment], data: Dataset) -> None:
    """Raises now what would otherwise come up in the middle of the work; says what was chosen for the user's data."""
    for experiment in {replace(one, seed=0): one for one in experiments}.values():
        experiment.check(data)
    for experiment in {replace(one, method=experiments[0].method): one for one in experiments}.values():
        samples = len(experiment.order(data))
        if experiment.query_every > samples:
            raise InputError(
                f"query_every={experiment.query_every} is more than the stream's {samples} samples, so the curve would "
                f"have no point; give --query-every a number up to {samples}."
            )
    _say_choices(experiments, data)


def _say_choices(experiments: Sequence[Experiment], data: Dataset) -> None:
    """Says on standard error what was chosen; nothing for the data sets that have a setting."""
    from iblurry.cli.data import print_notes
    from iblurry.experiment.settings import is_known

    first = experiments[0]
    if is_known(first.dataset):
        return
    print_notes(data)
    fields = {"tasks": {getattr(one.stream, "tasks", None) for one in experiments}}
    fields |= {name: {getattr(one, name) for one in experiments} for name in ("memory", "query_every", "network")}
    same = [f"--{name.replace('_', '-')} {one}" for name, (one, *more) in fields.items() if one and not more]
    counts = f"{len(data.classes)} classes, {len(data.train):,} training and {len(data.test):,} test images"
    click.echo(f"{data.name}: {counts}, so {' '.join(same)}; give these options to change them.", err=True)


def run_with_bars(
    title: str,
    named: Mapping[str, Experiment],
    config: LaunchConfig,
    own: Sequence[Callback] = (),
    failures: dict[str, IblurryError] | None = None,
) -> list[Result]:
    """Runs experiments, each with a bar by its name, and a bar of all with the title; `own` callbacks follow each."""
    from iblurry.launch.launch import run_all
    from iblurry.launch.progress import ProgressDisplay

    with ProgressDisplay(title, runs=len(named)) as display:
        callbacks = [
            [display.callback(name, is_done=config.is_done(experiment)), *own] for name, experiment in named.items()
        ]
        return run_all(list(named.values()), config, callbacks, failures=failures)


def say_stopped(out: Path) -> int:
    """Says that runs were interrupted; the exit code for that."""
    click.echo(f"iblurry: Stopped, and saved in {out}. The same command continues.", err=True)
    return INTERRUPTED


def figure_files(given: Mapping[str, Any], stem: str) -> list[Path]:
    """Where the figure goes: to --figure, or by its usual name to --out."""
    return [given["figure"]] if given["figure"] else [given["out"] / f"{stem}.png", given["out"] / f"{stem}.svg"]


def _check_metrics(names: Sequence[str], callbacks: Sequence[Callback], folders: Sequence[Path]) -> None:
    """UnknownNameError now for what neither the package nor a callback nor a run that is there already has.

    A callback that does not say what it logs may log anything.
    """
    from iblurry.analysis.table import find_metrics, logged_names
    from iblurry.experiment.folder import RunFolder
    from iblurry.experiment.metrics import RESERVED
    from iblurry.experiment.result import read_result

    words = {name.partition(":")[0] for name in names} - {*RESERVED}
    own = {name for one in callbacks for name in (words if one.logs is None and one.run_hooks() else one.logs or ())}
    if words - own:
        own.update(logged_names(read_result(place) for place in map(RunFolder, folders) if place.journal.exists()))
    find_metrics(names, own)


# --------------------------------------------------------------------------------------------------------- searches


def _run_grid(rows: Sequence[str], given: Mapping[str, Any], grids: Sequence[str], *, as_json: bool) -> int:
    """Runs every point of a grid; a point whose run fails does not stop the others."""
    from iblurry.data.load import load
    from iblurry.studies.search.figure import draw_search
    from iblurry.studies.search.points import expand_grid, grid_results, parse_spaces

    spaces = parse_spaces(grids, taken_paths(rows, given), option="--grid")
    points = expand_grid(make_experiments(rows, with_validation(given)), spaces)
    named = {f"{point.row} {point} seed {one.seed}": one for point in points for one in point.experiments}
    check_all(list(named.values()), load(given["dataset"], given["data_home"]))
    failures: dict[str, IblurryError] = {}
    results = run_with_bars(f"grid on {given['dataset']}", named, options.launch_config(given), failures=failures)
    if any(result.summary is None and result.experiment.name not in failures for result in results):
        return say_stopped(given["out"])
    digest = zlib.crc32(" ".join(experiment.digest for experiment in named.values()).encode())
    stem = f"grid-{points[0].experiments[0].name.rsplit('-', 2)[0]}-{digest:08x}"
    show_search(grid_results(points, results, failures), stem, draw_search, given, as_json=as_json)
    return FAILED if failures else 0


def with_validation(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a search: without --validate, the usual share is held out."""
    from iblurry.studies.search.points import VALIDATE

    return {**given, "validate": VALIDATE if given["validate"] is None else given["validate"]}


def taken_paths(rows: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    """Paths that options, --set or a row's own changes set."""
    own = [word for row in rows for word in row.split()[1:]]
    changed = [change.partition("=")[0].strip() for change in (*given["changes"], *own)]
    return [*experiment_options(given), *changed]


def show_search(
    results: Sequence[PointResult],
    stem: str,
    draw: Callable[..., None],
    given: Mapping[str, Any],
    *,
    as_json: bool,
    **more: str,
) -> None:
    """Draws the figure, called `stem`; prints the table and the commands of the best points.

    The commands are for the same experiments and folders, and on the test images; `more` are entries for the JSON.
    """
    from iblurry.analysis.describe import describe_settings
    from iblurry.storage.files import replacing
    from iblurry.studies.search.points import best_points, search_to_json, search_to_terminal

    title = describe_settings([one for result in results for one in result.point.experiments])
    best = best_points(results)
    figures = figure_files(given, stem) if best else []
    for path in figures:
        with replacing(path) as part:
            draw(results, part, title=title)
    commands = {row: _test_command(one.point, given) for row, one in best.items()}
    for result in results:
        if result.note:
            click.echo(f"iblurry: {result.point.row} {result.point}: {result.note}", err=True)
    if as_json:
        chosen = [
            {"method": row, "fields": dict(one.point.changes), "command": commands[row]} for row, one in best.items()
        ]
        about = {"title": title, "metric": "a_auc", "unit": "percent", "points": search_to_json(results)}
        click.echo(json.dumps(about | {"best": chosen, "figures": list(map(str, figures))} | more, indent=2))
        return
    click.echo(title)
    click.echo(search_to_terminal(results, width=shutil.get_terminal_size().columns, bold=sys.stdout.isatty()))
    if figures:
        click.echo("Figure: " + "\n        ".join(map(str, figures)))
    for row, one in best.items():
        click.echo(f"Best{f' of {row}' if len(best) > 1 else ''}: {one.point}; on the test images:")
        click.echo(f"  {commands[row]}")


def _test_command(point: SearchPoint, given: Mapping[str, Any]) -> str:
    """The command line of a point without --validate: what was told about the experiments, and its values."""
    method, *own = point.row.split()
    words = ["iblurry", "run", method]
    for name in experiment_options(given):
        if name not in ("changes", "validate"):
            value = given[name]
            text = (
                ",".join(map(str, value)) if name == "seeds" else f"{value:g}" if type(value) is float else str(value)
            )
            words += [f"--{name.replace('_', '-')}", text]
    for change in (*given["changes"], *own, *(f"{path}={value}" for path, value in point.changes.items())):
        words += ["--set", change]
    words += ["--out", str(given["out"])] if given["out"] != options.RUNS else []
    words += ["--data-home", str(given["data_home"])] if given["data_home"] else []
    return shlex.join(words)
