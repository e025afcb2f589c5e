"""`iblurry run`: experiments, one per method and seed, run or continued, then the table and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.experiment_options import LEARNING, STREAM, check_all, experiment_options, make_experiments
from iblurry.cli.options import (
    FIGURE,
    MACHINE,
    GroupedCommand,
    OutputFolder,
    callback_option,
    data_home_option,
    import_option,
    json_option,
    launch_config,
    machine_options,
    metric_option,
    parse_callbacks,
    say_at_once,
)
from iblurry.cli.study_options import split_names
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.experiment.callback import Callback

DEFAULT_METHODS = ("balm", "clib", "er")
DEFAULT_SEEDS = (1, 2, 3)
GROUPS = {
    "Stream": STREAM,
    "Learning (defaults are the paper's for the data set)": (*LEARNING, "grids", "modules"),
    "Table": ("callbacks", "metric"),
    "Places": ("out", "figure", "data_home", "as_json"),
    "Machine (nothing here is part of the experiment)": MACHINE,
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


@click.command(cls=GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@click.argument("methods", nargs=-1, metavar="[METHOD]...")
@experiment_options(validate="0.1 with --grid")
@click.option(
    "--grid",
    "grids",
    multiple=True,
    metavar="PATH=V1,V2,...",
    help="Run every value, of several grids every combination, and name the best on held-out training images.",
)
@import_option
@callback_option
@metric_option(
    "a_auc, min_acc, forgetting:max, or what callbacks log: mine, mine:mean.", "accuracies, all that was logged"
)
@click.option("--out", type=OutputFolder(), default="runs", help="Folder of the runs.")
@click.option("--figure", type=FIGURE, help="A .png, .svg or .pdf.  [default: .png and .svg in --out]")
@data_home_option
@machine_options(jobs="one per core; 1 on a GPU", pack="1")
@json_option
def run(
    methods: tuple[str, ...],
    about: dict[str, Any],
    grids: tuple[str, ...],
    callbacks: tuple[str, ...],
    metric: tuple[str, ...],
    out: Path,
    figure: Path | None,
    data_home: Path | None,
    as_json: bool,
    machine: dict[str, Any],
) -> int:
    """Run METHODs (default: balm clib er) on a stream; print the table, draw the figure.

    A METHOD with changes, in the form of --set, is one word in quotes. The same command continues interrupted runs
    and keeps finished ones.
    """
    say_at_once(f"Loading PyTorch, then {about['dataset']}.")
    rows = methods or DEFAULT_METHODS
    if grids:
        if callbacks or metric:
            raise InputError(
                "--grid ranks by A_AUC only; run the values it chooses with --set and your --callback or --metric."
            )
        from iblurry.cli.search import run_grid

        return run_grid(rows, about, grids, machine, out=out, figure=figure, data_home=data_home, as_json=as_json)
    named = make_experiments(rows, about)
    experiments = list(named.values())
    from iblurry.analysis.describe import name_figure
    from iblurry.cli.show import show_results
    from iblurry.cli.verbs import INTERRUPTED
    from iblurry.data.load import load
    from iblurry.launch.launch import prepare, run_all
    from iblurry.launch.progress import ProgressDisplay

    config = launch_config(machine, out, data_home)
    prepare(experiments, config)
    own, metrics = parse_callbacks(callbacks), split_names(metric)
    _check_metrics(metrics or (), own, [] if machine["again"] else [out / one.name for one in experiments])
    check_all(experiments, load(about["dataset"], data_home))
    with ProgressDisplay("all runs", runs=len(experiments)) as display:
        watching = [
            display.callback(f"{row} seed {seed}", is_done=config.is_done(one)) for (row, seed), one in named.items()
        ]
        results = run_all(experiments, config, [[bar, *own] for bar in watching])
    if len(results) < len(experiments) or any(result.summary is None for result in results):
        click.echo(f"iblurry: Stopped, and saved in {out}. The same command continues.", err=True)
        return INTERRUPTED
    stem = name_figure(experiments, DEFAULT_METHODS, DEFAULT_SEEDS)
    figures = [figure] if figure else [out / f"{stem}.png", out / f"{stem}.svg"]
    show_results(results, figures, metrics=metrics, as_json=as_json)
    return 0


def _check_metrics(names: Sequence[str], callbacks: Sequence[Callback], folders: Sequence[Path]) -> None:
    """UnknownNameError now for what neither the package nor a callback nor a run that is there already has.

    A callback that does not say what it logs may log anything.
    """
    from iblurry.analysis.metrics import find_metrics, logged_names
    from iblurry.experiment.folder import RunFolder
    from iblurry.experiment.metrics import RESERVED
    from iblurry.experiment.result import read_result

    words = {name.partition(":")[0] for name in names} - {*RESERVED}
    own = {name for one in callbacks for name in (words if one.logs is None and one.run_hooks() else one.logs or ())}
    if words - own:
        own.update(logged_names(read_result(place) for place in map(RunFolder, folders) if place.journal.exists()))
    find_metrics(names, own)
