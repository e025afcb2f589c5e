"""`iblurry run`: experiments, one per method and seed, run or continued, then the table and the figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.experiment.experiment import Experiment

DEFAULT_METHODS = ("clib", "er")


@click.command()
@click.argument("methods", nargs=-1, metavar="[METHOD]...")
@click.option("--dataset", default="digits", show_default=True, help="A source of `iblurry data`, a .npz or a folder.")
@click.option("--seeds", default="1,2,3", show_default=True, help="Seeds, separated by commas.")
@click.option("--disjoint", type=float, help="N: per cent of classes that live in one task.  [default: 50]")
@click.option("--blur", type=float, help="M: per cent of blurry samples spread over all tasks.  [default: 10]")
@click.option("--tasks", type=int, help="Number of tasks.  [default: the paper's]")
@click.option("--memory", type=int, help="Budget of samples kept.  [default: the paper's]")
@click.option("--network", help="convnet, mlp, resnet18 or resnet34.  [default: the paper's]")
@click.option("--samples", type=int, help="Stop after so many samples.  [default: the whole stream]")
@click.option("--query-every", type=int, help="Samples between two queries.  [default: the paper's]")
@click.option("--published", type=click.Path(path_type=Path), help="Take the order from these published split files.")
@click.option(
    "--set", "changes", multiple=True, metavar="PATH=VALUE", help="Any field: admission=Balanced, mode=uneven."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Where runs live."
)
@click.option("--figure", type=click.Path(path_type=Path), help="Figure file, .png .svg or .pdf.  [default: in --out]")
@click.option("--data-home", type=click.Path(path_type=Path), help="Where imported data sets live.")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs at a time.  [default: as many as there are cores]")
@click.option(
    "--threads", type=click.IntRange(min=1), help="Torch threads of each run.  [default: its share; 1 if small]"
)
@click.option("--save-seconds", type=float, default=30, show_default=True, help="Seconds between two checkpoints.")
@click.option("--save-samples", type=click.IntRange(min=1), help="Also a checkpoint every so many samples.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables and bars.")
def run(
    methods: tuple[str, ...],
    dataset: str,
    seeds: str,
    changes: tuple[str, ...],
    out: Path,
    figure: Path | None,
    data_home: Path | None,
    jobs: int | None,
    threads: int | None,
    save_seconds: float,
    save_samples: int | None,
    as_json: bool,
    published: Path | None,
    **fields: Any,
) -> int:
    """Run METHODS (default: clib er) on a stream, or continue them; then print the table and draw the figure.

    The same command continues what was interrupted and keeps what is done.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if published is not None:
        given["published"] = str(published)
    experiments = [
        _experiment(method, dataset, seed, given, changes)
        for method in methods or DEFAULT_METHODS
        for seed in _seeds(seeds)
    ]

    from iblurry.cli.showing import check_figure, console, show_results
    from iblurry.data.load import load
    from iblurry.experiment.progress import Bars, Silent
    from iblurry.experiment.run import Often
    from iblurry.experiment.workers import Plan, run_all

    check_figure(figure)
    data = load(dataset, data_home)
    for experiment in {one.method.name: one for one in experiments}.values():
        experiment.check(data)
    often = Often(seconds=save_seconds, samples=save_samples)
    plan = Plan(out=out, data_home=data_home, save=often, jobs=jobs, threads=threads)
    with Bars(console(as_json)) as bars:
        results = run_all(experiments, plan, [Silent() if as_json else bars.bar() for _ in experiments])
        if any(result.summary is None for result in results):
            bars.say(f"Stopped and saved in {out}. The same command goes on from there.")
            return 130
    show_results(results, figure or out / f"{_stem(experiments[0])}.png", as_json=as_json)
    return 0


def _experiment(method: str, dataset: str, seed: int, given: dict[str, Any], changes: tuple[str, ...]) -> Experiment:
    from iblurry.experiment.edit import edit
    from iblurry.experiment.experiment import Experiment

    experiment = Experiment.of(method, dataset, seed=seed, **given)
    for change in changes:
        experiment = edit(experiment, change)
    return experiment


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds {text!r} is no list of seeds; write whole numbers like 1,2,3.") from None
    if len(set(seeds)) < len(seeds):
        raise InputError(f"--seeds {text!r} names a seed twice; a seed is one run.")
    return seeds


def _stem(experiment: Experiment) -> str:
    dataset = experiment.name.removeprefix(f"{experiment.method.name}-").rsplit("-", 2)[0]
    return f"{dataset}-i-blurry-{experiment.disjoint:g}-{experiment.blur:g}"
