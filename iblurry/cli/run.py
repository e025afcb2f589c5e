"""`iblurry run`: experiments, one per method and seed, run or continued, then the table and the figure."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.options import (
    FIGURE,
    MACHINE,
    PERCENT,
    PLACE,
    GroupedCommand,
    NumberRange,
    OutputFolder,
    Seeds,
    import_option,
    launch_config,
    machine_options,
    parse_stream,
)
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.data.dataset import Dataset
    from iblurry.experiment.experiment import Experiment

DEFAULT_METHODS = ("clib", "er")
DEFAULT_SEEDS = (1, 2, 3)
ELSEWHERE = {"dataset": "--dataset", "seed": "--seeds", "method": "the METHOD argument"}  # what --set cannot change
GROUPS = {
    "Stream": (
        *(
            "dataset",
            "seeds",
            "stream",
            "disjoint",
            "blur",
            "tasks",
            "mode",
            "samples",
            "share",
            "validate",
            "published",
        ),
    ),
    "Learning (defaults are the paper's for the data set)": ("memory", "network", "query_every", "changes", "modules"),
    "Places": ("out", "figure", "data_home", "as_json"),
    "Machine (nothing here is part of the experiment)": MACHINE,
}
EXAMPLES = """\b
Examples:
  iblurry run
  iblurry run clib er --disjoint 50 --blur 30 --memory 200 --seeds 1-5
  iblurry run clib --set admission=Balanced --set schedule.initial_lr=0.001
  iblurry run er "er schedule.initial_lr=0.001" "er memory=50"
  iblurry run clib --import mine.py --set admission=Mine
"""


@click.command(cls=GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@click.argument("methods", nargs=-1, metavar="[METHOD]...")
@click.option("--dataset", metavar="SPEC", default="digits", help="See `iblurry data`.")
@click.option("--seeds", type=Seeds(), default="1-3", help="One run for each, as 1,2,3 or 1-3.")
@click.option("--stream", metavar="NAME", help="IBlurry, Listed or your own, as NAME:field=value.  [default: IBlurry]")
@click.option("--disjoint", metavar="N", type=PERCENT, help="Per cent of classes in one task only.  [default: 50]")
@click.option("--blur", metavar="M", type=PERCENT, help="Per cent of blurry samples that stray.  [default: 10]")
@click.option("--tasks", metavar="T", type=click.IntRange(1), help="How many tasks.  [default: the paper's]")
@click.option("--mode", metavar="NAME", help="strict, uneven, compatible: if N does not fit.")
@click.option("--samples", metavar="S", type=click.IntRange(1), help="Stop after so many samples.  [default: all]")
@click.option("--share", metavar="P", type=NumberRange(0, 1), help="Part of each class's images, as 0.1.  [default: 1]")
@click.option("--validate", metavar="P", type=NumberRange(0, 1), help="Ask about held-out training images, as 0.1.")
@click.option("--published", metavar="FOLDER", type=PLACE, help="Take the order from published split files.")
@click.option("--memory", metavar="K", type=click.IntRange(1), help="Samples that may be kept.")
@click.option("--network", metavar="NAME", help="convnet, mlp, resnet18, resnet34 or your own, as NAME:option=value.")
@click.option("--query-every", metavar="S", type=click.IntRange(1), help="Samples between two queries.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Any field: pace.stream_batch=4, admission=Balanced. `iblurry methods --json` lists them. Repeatable.",
)
@import_option
@click.option("--out", type=OutputFolder(), default="runs", help="Where runs live.")
@click.option("--figure", type=FIGURE, help="A .png, .svg or .pdf.  [default: .png and .svg in --out]")
@click.option("--data-home", metavar="FOLDER", type=PLACE, help="Where imported data live, as in `iblurry data`.")
@machine_options(jobs="one per core; 1 on a GPU", pack="1")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def run(
    methods: tuple[str, ...],
    dataset: str,
    seeds: tuple[int, ...],
    changes: tuple[str, ...],
    out: Path,
    figure: Path | None,
    data_home: Path | None,
    as_json: bool,
    stream: str | None,
    published: Path | None,
    machine: dict[str, Any],
    **fields: Any,
) -> int:
    """Run METHODs (default: clib er) on a stream; print the table, draw the figure.

    A METHOD with changes of its own, as --set writes them, is one word in quotes. The same command goes on with what
    was interrupted and keeps what is done.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if published is not None:
        given["published"] = str(published)
    if stream is not None:
        given["stream"] = parse_stream(stream)
    named = _experiments(methods or DEFAULT_METHODS, dataset, seeds, given, changes)
    experiments = list(named.values())

    from iblurry.cli.main import INTERRUPTED
    from iblurry.cli.progress import ProgressDisplay
    from iblurry.cli.show import show_results
    from iblurry.data.load import load
    from iblurry.launch.launch import run_all
    from iblurry.studies.describe import name_figure

    check_all(experiments, load(dataset, data_home))
    config = launch_config(machine, out, data_home)
    with ProgressDisplay() as display:
        callbacks = [display.callback(f"{row} seed {seed}") for row, seed in named]
        results = run_all(experiments, config, callbacks)
    if len(results) < len(experiments) or any(result.summary is None for result in results):
        click.echo(f"iblurry: Stopped, and saved in {out}. The same command goes on from there.", err=True)
        return INTERRUPTED
    stem = name_figure(experiments, DEFAULT_METHODS, DEFAULT_SEEDS)
    figures = [figure] if figure else [out / f"{stem}.png", out / f"{stem}.svg"]
    show_results(results, figures, as_json=as_json)
    return 0


def _experiments(
    rows: Sequence[str], dataset: str, seeds: Sequence[int], given: dict[str, Any], changes: Sequence[str]
) -> dict[tuple[str, int], Experiment]:
    """By row and seed; a row is a method, or a method and changes of its own, which come after those of --set."""
    from iblurry.experiment.edit import edit
    from iblurry.experiment.experiment import Experiment

    experiments = {}
    for row in rows:
        if rows.count(row) > 1:
            raise InputError(f"The method {row} is named {rows.count(row)} times; name each once.")
        method, *own = row.split() or [""]
        if "=" in method:
            raise InputError(f"{row!r} is a change and no method; write both as one word: 'er {row}', with quotes.")
        for change in (*changes, *own):
            name = change.partition("=")[0].strip()
            if name in ELSEWHERE:
                raise InputError(f"{change}: {name} is not set this way; use {ELSEWHERE[name]}.")
        for seed in seeds:
            experiment = Experiment.of(method, dataset, seed=seed, **given)
            for change in (*changes, *own):
                experiment = edit(experiment, change)
            experiments[row, seed] = experiment
    if len({experiment.digest for experiment in experiments.values()}) < len(experiments):
        raise InputError(f"With these changes, {' and '.join(rows)} become the same experiment; name one of them.")
    return experiments


def check_all(experiments: Sequence[Experiment], data: Dataset) -> None:
    """Raises now what would otherwise come up in the middle of the work."""
    for experiment in {replace(one, seed=0): one for one in experiments}.values():
        _check_room(experiment.budget(data), data)
        experiment.check(data)
    for experiment in {replace(one, method=experiments[0].method): one for one in experiments}.values():
        samples = len(experiment.order(data))
        if experiment.query_every > samples:
            raise InputError(
                f"query_every={experiment.query_every} is more than the stream's {samples} samples, so the curve would "
                f"have no point; give --query-every a number up to {samples}."
            )


def _check_room(memory: int, data: Dataset) -> None:
    """A system that promises more memory than it has would end the program without a word."""
    needed = memory * math.prod(data.shape)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise InputError(
            f"memory={memory} takes {needed / 1e9:,.0f} GB and this machine has {there / 1e9:,.0f} GB; the stream has "
            f"{len(data.train):,} samples, and more are never kept."
        )
