"""What `run` and `tune` have on their command lines about experiments: data, stream, memory, network and --set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.options import PERCENT, PLACE, Decorator, NumberRange, Seeds, bundle_options, parse_stream
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.experiment.experiment import Experiment

STREAM = (
    *("dataset", "seeds", "stream", "disjoint", "blur", "tasks", "mode", "samples", "share", "validate", "published"),
)
LEARNING = ("memory", "network", "query_every", "changes")
ELSEWHERE = {"dataset": "--dataset", "seed": "--seeds", "method": "the METHOD argument"}  # what --set cannot change


def experiment_options(*, validate: str = "") -> Decorator:
    """Gives a verb what it is told about experiments, as `about`; `validate` is the default of --validate in words."""
    positive, option = click.IntRange(1), click.option
    held_out = f"Ask about held-out training images, as 0.1.{f'  [default: {validate}]' if validate else ''}"
    options = (
        option("--dataset", metavar="SPEC", default="digits", help="See `iblurry data`."),
        option("--seeds", type=Seeds(), default="1-3", help="One run for each, as 1,2,3 or 1-3."),
        option("--stream", metavar="NAME", help="IBlurry (default), Gaussian, your own, ..., as NAME:field=value."),
        option("--disjoint", metavar="N", type=PERCENT, help="Per cent of classes in one task only.  [default: 50]"),
        option("--blur", metavar="M", type=PERCENT, help="Per cent of blurry samples in other tasks.  [default: 10]"),
        option("--tasks", metavar="T", type=positive, help="How many tasks.  [default: the paper's]"),
        option("--mode", metavar="NAME", help="strict, uneven, compatible: if N does not fit."),
        option("--samples", metavar="S", type=positive, help="Stop after so many samples.  [default: all]"),
        option("--share", metavar="P", type=NumberRange(0, 1), help="Share of each class's images: 0.1.  [default: 1]"),
        option("--validate", metavar="P", type=NumberRange(0, 1), help=held_out),
        option("--published", metavar="FOLDER", type=PLACE, help="Take the order from published split files."),
        option("--memory", metavar="K", type=positive, help="How many samples may be stored."),
        option(
            "--network",
            metavar="NAME",
            help="convnet, mlp, resnet18, resnet34 or your own, as NAME:option=value.",
        ),
        option("--query-every", metavar="S", type=positive, help="Samples between two queries."),
        option(
            "--set",
            "changes",
            multiple=True,
            metavar="PATH=VALUE",
            help="Any field: pace.stream_batch=4, admission=Balanced. `iblurry methods --json` lists them. Repeatable.",
        ),
    )
    return bundle_options("about", dict(zip((*STREAM, *LEARNING), options, strict=True)))


def make_experiments(rows: Sequence[str], about: Mapping[str, Any]) -> dict[tuple[str, int], Experiment]:
    """By row and seed; a row is a method, or a method and changes of its own, which come after those of --set."""
    from iblurry.edit import edit
    from iblurry.experiment.experiment import Experiment

    elsewhere = ("dataset", "seeds", "changes", "stream", "published")
    given = {name: value for name, value in about.items() if value is not None and name not in elsewhere}
    given |= {"published": str(about["published"])} if about["published"] is not None else {}
    given |= {"stream": parse_stream(about["stream"])} if about["stream"] is not None else {}
    experiments = {}
    for row in rows:
        if rows.count(row) > 1:
            raise InputError(f"The method {row} is named {rows.count(row)} times; name each once.")
        method, *own = row.split() or [""]
        if "=" in method:
            raise InputError(f"{row!r} is a change without a method; write both in quotes: 'er {row}'.")
        for change in (*about["changes"], *own):
            name = change.partition("=")[0].strip()
            if name in ELSEWHERE:
                raise InputError(f"{change}: {name} is not set this way; use {ELSEWHERE[name]}.")
        for seed in about["seeds"]:
            experiment = Experiment.of(method, about["dataset"], seed=seed, **given)
            experiments[row, seed] = edit(experiment, *about["changes"], *own)
    if len({experiment.digest for experiment in experiments.values()}) < len(experiments):
        raise InputError(f"With these changes, {' and '.join(rows)} become the same experiment; name one of them.")
    return experiments
