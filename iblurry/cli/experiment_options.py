"""What `run` and `tune` have on their command lines about experiments: data, stream, memory, network and --set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.options import PERCENT, PLACE, Decorator, NumberRange, Seeds, bundle_options, parse_stream
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.data.dataset import Dataset
    from iblurry.experiment.experiment import Experiment

STREAM = (
    *("dataset", "seeds", "stream", "disjoint", "blur", "tasks", "mode", "samples", "share", "validate", "published"),
)
LEARNING = ("memory", "network", "query_every", "changes")
ELSEWHERE = {"dataset": "--dataset", "seed": "--seeds", "method": "the METHOD argument"}  # what --set cannot change


SHARE = NumberRange(0, 1)
_option = click.option
STREAM_OPTIONS = {
    "dataset": _option("--dataset", metavar="SPEC", default="digits", help="See `iblurry data`."),
    "seeds": _option("--seeds", type=Seeds(), default="1-3", help="One run for each, as 1,2,3 or 1-3."),
    "stream": _option("--stream", metavar="NAME", help="IBlurry (default), Gaussian, ..., as NAME:field=value."),
    "disjoint": _option("--disjoint", metavar="N", type=PERCENT, help="% of classes in one task only.  [default: 50]"),
    "blur": _option("--blur", metavar="M", type=PERCENT, help="% of blurry samples in other tasks.  [default: 10]"),
    "tasks": _option("--tasks", metavar="T", type=click.IntRange(1), help="How many tasks.  [default: the paper's]"),
    "mode": _option("--mode", metavar="NAME", help="strict, uneven, compatible: if N does not fit."),
    "samples": _option("--samples", metavar="S", type=click.IntRange(1), help="Stop after so many.  [default: all]"),
    "share": _option("--share", metavar="P", type=SHARE, help="Share of each class's images: 0.1.  [default: 1]"),
    "published": _option(
        "--published", metavar="FOLDER", type=PLACE, help="Take the order from published split files."
    ),
}


def stream_options(*names: str) -> Decorator:
    """Gives a verb these of the options about data and stream, each as a value of its own."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            command = STREAM_OPTIONS[name](command)
        return command

    return decorate


def experiment_options(*, validate: str = "") -> Decorator:
    """Gives a verb what it is told about experiments, as `about`; `validate` is the default of --validate in words."""
    positive, option = click.IntRange(1), click.option
    held_out = f"Ask about held-out training images, as 0.1.{f'  [default: {validate}]' if validate else ''}"
    options = STREAM_OPTIONS | {"validate": option("--validate", metavar="P", type=SHARE, help=held_out)}
    options |= {
        "memory": option("--memory", metavar="K", type=positive, help="How many samples may be stored."),
        "network": option("--network", metavar="NAME", help="convnet, mlp, resnet18, ..., as NAME:option=value."),
        "query_every": option("--query-every", metavar="S", type=positive, help="Samples between two queries."),
        "changes": option(
            "--set",
            "changes",
            multiple=True,
            metavar="PATH=VALUE",
            help="Any field: pace.stream_batch=4, admission=Balanced. `iblurry methods --json` lists them. Repeatable.",
        ),
    }
    return bundle_options("about", {name: options[name] for name in (*STREAM, *LEARNING)})


def make_experiments(rows: Sequence[str], about: Mapping[str, Any]) -> dict[tuple[str, int], Experiment]:
    """Makes experiments by row and seed; a row is a method, or a method and changes of its own, which come after
    those of --set.
    """
    from iblurry.components.edit import edit
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
