"""`iblurry methods`: what there is to run, and what each is made of."""

from __future__ import annotations

import dataclasses
import json
import shutil
import textwrap
from typing import Any

import click

from iblurry.cli.own import import_option, import_own


@click.command()
@import_option
@click.option("--json", "as_json", is_flag=True, help="Print every field of every method and part as JSON.")
def methods(modules: tuple[str, ...], as_json: bool) -> None:
    """List the methods: name, idea, parts. Any name also works with -released, as the authors' program runs it.

    The fields that --json prints are those that `iblurry run --set` changes.
    """
    import_own(modules)
    if as_json:
        click.echo(json.dumps(_everything(), indent=2))
        return
    from iblurry.methods import METHODS

    margin = max(map(len, METHODS)) + 2
    for name, recipe in METHODS.items():
        parts = ", ".join(type(part).__name__ for _, part in recipe().parts())
        click.echo(f"{name:<{margin}}" + _wrapped(recipe.idea, margin))
        click.echo(" " * margin + click.style(_wrapped(parts, margin), dim=True))
    click.echo("\nPapers and fields: iblurry methods --json.  Change a field: iblurry run --set")


def _wrapped(text: str, margin: int) -> str:
    lines = textwrap.wrap(text, max(20, shutil.get_terminal_size().columns - margin))
    return ("\n" + " " * margin).join(lines)


def _everything() -> dict[str, Any]:
    from iblurry.experiment.experiment import Experiment
    from iblurry.method import KINDS
    from iblurry.methods import METHODS
    from iblurry.parts.part import known_parts

    usual = Experiment.of("er").to_json()
    return {
        "methods": {
            name: {"idea": recipe.idea, "paper": recipe.paper, "fields": recipe().to_json()}
            for name, recipe in METHODS.items()
        },
        "parts": {
            slot: {name: _fields(part) for name, part in known_parts(kind.kind).items()} for slot, kind in KINDS.items()
        },
        "experiment": {name: value for name, value in usual.items() if name != "method"},
    }


def _fields(part: type[Any]) -> dict[str, Any]:
    """Each field and its default; null where there is none."""
    fields = [field for field in dataclasses.fields(part) if field.init]
    return {field.name: None if field.default is dataclasses.MISSING else field.default for field in fields}
