"""`iblurry tune`: a search with Optuna for the fields of a method that are best on held-out training images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iblurry.cli import options
from iblurry.cli.run import check_all, make_experiments, say_stopped, show_search, taken_paths, with_validation

if TYPE_CHECKING:
    from iblurry.experiment.experiment import Experiment
    from iblurry.launch.progress import RunBar

PRUNERS = ("median", "none")
GROUPS = {
    "Search": ("spaces", "trials", "pruner"),
    "Stream": options.STREAM,
    "Learning (defaults are the paper's for the data set)": (*options.LEARNING, "modules"),
    "Places": ("out", "figure", "data_home", "as_json"),
    "Machine (nothing here is part of the search)": options.MACHINE,
}
EXAMPLES = """\b
Examples:
  iblurry tune clib --space schedule.initial_lr=1e-4..1e-2:log --trials 20
  iblurry tune er --space memory=50..500 --space admission=Reservoir,Balanced
"""


@click.command(cls=options.GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@click.argument("method")
@click.option(
    "--space",
    "spaces",
    multiple=True,
    required=True,
    metavar="PATH=VALUES",
    help="A field and its range LOW..HIGH or LOW..HIGH:log, or values A,B,C. Repeatable.",
)
@click.option("--trials", metavar="N", type=options.COUNT, default=20, help="Total number, including earlier ones.")
@click.option(
    "--pruner",
    metavar="NAME",
    type=click.Choice(PRUNERS),
    default="median",
    help="median: stop trials below the median of those before; none.",
)
@options.add(options.STREAM | options.LEARNING)
@options.import_option
@click.option("--out", type=options.OutputFolder(), default=options.RUNS, help="Folder of runs and trials.")
@options.figure_option
@options.data_home_option
@options.add(options.machine_options(jobs="1", pack="one per seed"))
@options.json_option
def tune(method: str, spaces: tuple[str, ...], trials: int, pruner: str, as_json: bool, **given: Any) -> int:
    """Search for the fields of METHOD with the highest A_AUC on held-out training images, with Optuna.

    Prints all trials and the command that runs the best on the test images. The same command continues an
    interrupted search; more --trials extend it.
    """
    options.say_at_once(f"Loading PyTorch, then {given['dataset']}.")

    from iblurry.data.load import load
    from iblurry.launch.progress import ProgressDisplay
    from iblurry.studies.search.figure import draw_history
    from iblurry.studies.search.points import parse_spaces
    from iblurry.studies.search.tune import Tuner, import_optuna

    import_optuna()
    parsed = parse_spaces(spaces, taken_paths([method], given))
    experiments = list(make_experiments([method], with_validation(given)).values())
    data = load(given["dataset"], given["data_home"])
    if given["pack"] is None and given["jobs"] is None:
        given["pack"] = len(experiments)  # all seeds come to a query before the trial is judged by it
    search = Tuner(method, experiments, parsed, dataset=data, config=options.launch_config(given), pruner=pruner)
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
        return say_stopped(given["out"])
    show_search(results, search.name, draw_history, given, as_json=as_json, storage=str(search.journal))
    return 0
