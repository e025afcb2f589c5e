"""`iblurry tune`: a search with Optuna for the fields of a method that are best on held-out training images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.experiment_options import LEARNING, STREAM, check_all, experiment_options, make_experiments
from iblurry.cli.options import (
    FIGURE,
    MACHINE,
    GroupedCommand,
    OutputFolder,
    data_home_option,
    import_option,
    json_option,
    launch_config,
    machine_options,
    say_at_once,
)

if TYPE_CHECKING:
    from iblurry.experiment.experiment import Experiment
    from iblurry.launch.progress import RunBar

PRUNERS = ("median", "none")
GROUPS = {
    "Search": ("spaces", "trials", "pruner"),
    "Stream": STREAM,
    "Learning (defaults are the paper's for the data set)": (*LEARNING, "modules"),
    "Places": ("out", "figure", "data_home", "as_json"),
    "Machine (nothing here is part of the search)": MACHINE,
}
EXAMPLES = """\b
Examples:
  iblurry tune clib --space schedule.initial_lr=1e-4..1e-2:log --trials 20
  iblurry tune er --space memory=50..500 --space admission=Reservoir,Balanced
"""


@click.command(cls=GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@click.argument("method")
@click.option(
    "--space",
    "spaces",
    multiple=True,
    required=True,
    metavar="PATH=VALUES",
    help="A field and its range LOW..HIGH or LOW..HIGH:log, or values A,B,C. Repeatable.",
)
@click.option("--trials", metavar="N", type=click.IntRange(1), default=20, help="Total number, including earlier ones.")
@click.option(
    "--pruner",
    metavar="NAME",
    type=click.Choice(PRUNERS),
    default="median",
    help="median: stop trials below the median of those before; none.",
)
@experiment_options(validate="0.1")
@import_option
@click.option("--out", type=OutputFolder(), default="runs", help="Folder of runs and trials.")
@click.option("--figure", type=FIGURE, help="A .png, .svg or .pdf.  [default: .png and .svg in --out]")
@data_home_option
@machine_options(jobs="1", pack="one per seed")
@json_option
def tune(
    method: str,
    spaces: tuple[str, ...],
    trials: int,
    pruner: str,
    about: dict[str, Any],
    out: Path,
    figure: Path | None,
    data_home: Path | None,
    as_json: bool,
    machine: dict[str, Any],
) -> int:
    """Search for the fields of METHOD with the highest A_AUC on held-out training images, with Optuna.

    Prints all trials and the command that runs the best on the test images. The same command continues an
    interrupted search; more --trials extend it.
    """
    say_at_once(f"Loading PyTorch, then {about['dataset']}.")

    from iblurry.cli.search import show_search, taken_paths, with_validation
    from iblurry.cli.verbs import INTERRUPTED
    from iblurry.data.load import load
    from iblurry.launch.progress import ProgressDisplay
    from iblurry.studies.search.figure import draw_history
    from iblurry.studies.search.points import parse_spaces
    from iblurry.studies.search.tune import Tuner, import_optuna

    import_optuna()
    parsed = parse_spaces(spaces, taken_paths([method], about))
    experiments = list(make_experiments([method], with_validation(about)).values())
    data = load(about["dataset"], data_home)
    if machine["pack"] is None and machine["jobs"] is None:
        machine = machine | {"pack": len(experiments)}  # all seeds come to a query before the trial is judged by it
    config = launch_config(machine, out, data_home)
    search = Tuner(method, experiments, parsed, dataset=data, config=config, pruner=pruner)
    check_all(search.corners, data)
    bars: dict[int, list[RunBar]] = {}  # by trial
    with ProgressDisplay() as display:

        def follow(number: int, experiment: Experiment, fields: str) -> RunBar:
            for bar in (bar for other in bars if other != number for bar in bars[other]):
                bar.remove()  # of a trial that was pruned
            bars.setdefault(number, []).append(display.callback(f"trial {number} {fields} seed {experiment.seed}"))
            return bars[number][-1]

        results = search.run(trials, follow)
    if results is None:
        click.echo(f"iblurry: Stopped, and saved in {out}. The same command continues.", err=True)
        return INTERRUPTED
    show_search(
        results,
        [figure] if figure else [out / f"{search.name}.png", out / f"{search.name}.svg"],
        draw_history,
        about=about,
        out=out,
        data_home=data_home,
        as_json=as_json,
        more={"storage": str(search.journal)},
    )
    return 0
