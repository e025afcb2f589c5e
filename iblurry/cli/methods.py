"""`iblurry methods`: what there is to run, what each is made of, and what it stores and costs."""

from __future__ import annotations

import dataclasses
import json
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.options import import_option

if TYPE_CHECKING:
    from iblurry.methods import Recipe
    from iblurry.methods.method import Method

USUAL = "cifar10"  # whose settings the figures are of
CLASSES, SAMPLES = 10, 50_000  # of that data set
WIDEST = 120  # columns; longer lines are hard to follow
INDENT = "  "
FOOTER = (
    "Cost: images through a network, once the memory is full, besides those a query asks about; as the paper tunes "
    "for CIFAR-10, with a memory of 500. Fields: iblurry methods METHOD, or --json. "
    "Change one: iblurry run --set PATH=VALUE"
)


@click.command()
@click.argument("names", nargs=-1, metavar="[METHOD]...")
@import_option
@click.option("--json", "as_json", is_flag=True, help="Print every field of every method and part as JSON.")
def methods(names: tuple[str, ...], as_json: bool) -> None:
    """List the methods: idea, cost, what they store, parts and paper. With METHODs: these alone, and their fields.

    Any name also works with -released, as the authors' program runs it. The fields are those that `iblurry run --set`
    changes. Costs are of the paper's tuning for CIFAR-10 with a memory of 500.
    """
    if as_json:
        click.echo(json.dumps(_everything(names), indent=2))
        return
    for name, (recipe, method) in chosen(names).items():
        tasks = "task-free" if method.task_free else "needs task boundaries"
        click.echo(click.style(name, bold=True) + click.style(f" - {tasks}", dim=True))
        click.echo(_wrapped(recipe.idea, INDENT))
        lines = details(recipe, method, fields=bool(names))
        margin = max(map(len, lines)) + 2
        for label, text in lines.items():
            click.echo(click.style(_wrapped(text, f"{INDENT}{label:<{margin}}"), dim=True))
        click.echo()
    click.echo(_wrapped(FOOTER, ""))


def chosen(names: Iterable[str]) -> dict[str, tuple[Recipe, Method]]:
    """The methods of these names, or all, tuned as usual."""
    from iblurry.experiment.settings import setting
    from iblurry.methods import METHODS, method

    tuned = {name: method(name, setting(USUAL).hyperparameters) for name in names or METHODS}
    return {name: (METHODS[name.removesuffix("-released")], made) for name, made in tuned.items()}


def details(recipe: Recipe, method: Method, *, fields: bool) -> dict[str, str]:
    """What is printed of a method, by label: its parts, or, with `fields`, each of them as --set takes it."""
    from iblurry.learner.cost import stores

    parts = {"parts": ", ".join(type(part).__name__ for _, part in method.parts())}
    if method.refit:
        parts["refit"] = ", ".join(type(part).__name__ for _, part in method.refit.parts())
    samples = "every sample of the stream" if method.admission.keeps_all else "samples"
    samples = "no sample" if method.admission.keeps_none else samples
    counts = {
        moment: ", ".join(f"{count:,.12g} {way}" for way, count in passes.items() if count)
        for moment, passes in _cost(method).items()
    }
    return {
        "cost": "; ".join(f"{passes} a {moment}" for moment, passes in counts.items() if passes) or "none",
        "stores": "; ".join([samples, *stores(method)]),
        **(_places(method) if fields else parts),
        "paper": recipe.paper,
    }


def _places(method: Method) -> dict[str, str]:
    """Each part with its fields, by the path that --set takes: {"admission": "Importance step=0.1 ..."}."""
    described: dict[str, Any] = {place: part.to_json() for place, part in method.parts()}
    whole = method.to_json()
    described |= {name: {"": whole[name]} for name in ("pace", "head")} | {"optimizer": whole["optimizer"]}
    if method.refit:
        described |= {f"refit.{place}": part.to_json() for place, part in method.refit.parts()}
        described["refit.optimizer"] = whole["refit"]["optimizer"]
    lines = {}
    for place, content in described.items():
        ((name, values),) = content.items()
        words = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in values.items()]
        lines[place] = " ".join([name, *words]).strip()
    return lines


def _cost(method: Method) -> dict[str, dict[str, float]]:
    """Images by direction, for each sample, query and task."""
    from iblurry.experiment.settings import setting
    from iblurry.learner.cost import cost

    memory = SAMPLES if method.admission.keeps_all else setting(USUAL).memory
    return dataclasses.asdict(cost(method, memory, classes=CLASSES))


def _wrapped(text: str, label: str) -> str:
    """Wraps a text as wide as the terminal, the lines after the first as far in as the label."""
    width = max(40, min(WIDEST, shutil.get_terminal_size().columns))
    return textwrap.fill(text, width, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False)


def _everything(names: Sequence[str]) -> dict[str, Any]:
    from iblurry.augment import TorchTransform, Transform
    from iblurry.experiment.experiment import Experiment
    from iblurry.learner.cost import stores
    from iblurry.methods.method import KINDS

    methods = {
        name: {
            "idea": recipe.idea,
            "paper": recipe.paper,
            "task_free": method.task_free,
            "stores": stores(method),
            "cost": _cost(method),
            "fields": method.to_json(),
        }
        for name, (recipe, method) in chosen(names).items()
    }
    transforms = {name: kind for name, kind in Transform.known().items() if kind is not TorchTransform}
    return {
        "methods": methods,
        "parts": {slot: {name: _fields(part) for name, part in kind.known().items()} for slot, kind in KINDS.items()},
        "transforms": {name: _fields(kind) for name, kind in transforms.items()},
        "experiment": {name: value for name, value in Experiment.of("er").to_json().items() if name != "method"},
    }


def _fields(part: type[Any]) -> dict[str, Any]:
    """Each field and its default; null where there is none."""
    fields = [field for field in dataclasses.fields(part) if field.init]
    return {field.name: None if field.default is dataclasses.MISSING else field.default for field in fields}
