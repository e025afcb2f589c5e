"""`iblurry data`: which data there are, getting them, and looking at them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.options import PLACE, OutputFile, import_option, json_option

if TYPE_CHECKING:
    from iblurry.data.dataset import Dataset
    from iblurry.data.load import DataSource


home_option = click.option(
    "--home",
    metavar="FOLDER",
    type=PLACE,
    callback=lambda context, option, given: given or context.obj,  # after the group's name or after the command's
    help="Where imported data live (default: $IBLURRY_DATA or ~/.cache/iblurry).",
)


@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]...")
@import_option
@home_option
@click.pass_context
def data(context: click.Context, home: Path | None) -> None:
    """List, download, import and show data sets.

    Wherever a data set is asked for, give a source of the list, with options like shapes:classes=20,size=16; the path
    of an .npz file; or the path of a folder of pictures. Sources of your own are on the list after --import.
    """
    context.obj = home
    if context.invoked_subcommand is None:
        context.invoke(list_, home=home, as_json=False)


@data.command("list")
@json_option
@import_option
@home_option
def list_(as_json: bool, home: Path | None) -> None:
    """List the sources and whether each is here (the default)."""
    from iblurry.data.load import SOURCES, stored_path

    sources = [
        {"name": source.name, "about": source.about, "state": _state(source, stored_path(source.name, home))}
        for source in SOURCES.values()
    ]
    place = stored_path("x", home).parent
    if as_json:
        click.echo(json.dumps({"home": str(place), "sources": sources}, indent=2))
        return
    _print_table(["source", "what", "state"], [list(source.values()) for source in sources])
    click.echo(f"\nData home: {place}")
    click.echo("Get one:   iblurry data fetch NAME, or iblurry data import NAME PATH")
    click.echo("Look:      iblurry data show NAME")


@data.command()
@click.argument("name")
@home_option
def fetch(name: str, home: Path | None) -> None:
    """Download NAME from its public address, check it and import it."""
    from iblurry.data.fetch import fetch as fetch_source

    click.echo(f"{name} is in {fetch_source(name, home)}")


@data.command("import", short_help="Import a copy of NAME that lies at PATH.")
@click.argument("name")
@click.argument("path", type=PLACE)
@home_option
def import_(name: str, path: Path, home: Path | None) -> None:
    """Import a copy of NAME at PATH: a folder or an archive in any of its public forms."""
    from iblurry.data.load import import_local

    click.echo(f"{name} is in {import_local(name, path, home)}")


@data.command(short_help="Show what a data set holds: classes, counts, a contact sheet.")
@click.argument("spec")
@click.option("--sheet", type=OutputFile(".png"), help="Draw a contact sheet into this .png.")
@json_option
@import_option
@home_option
def show(spec: str, sheet: Path | None, as_json: bool, home: Path | None) -> None:
    """Show what SPEC holds: a source, an .npz file or a folder of pictures, such as shapes:classes=20,size=16."""
    from iblurry.data.load import load

    dataset = load(spec, home)
    if sheet is not None:
        from iblurry.analysis.figures.sheet import dataset_sheet
        from iblurry.storage.files import replacing

        with replacing(sheet) as part:
            dataset_sheet(dataset).save(part, "PNG")
    facts = _facts(dataset)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        _print(facts)
    print_notes(dataset)
    if sheet is not None:
        click.echo(f"Contact sheet written to {sheet}", err=True)


def print_notes(dataset: Dataset) -> None:
    """What its reader chose or left out, on standard error."""
    for note in dataset.notes:
        click.echo(f"{dataset.name}: {note}", err=True)


def _state(source: DataSource, place: Path) -> str:
    if not source.is_own:
        return f"yours, of {source.reader.__module__}"
    if not source.takes_path:
        return "built in"
    if not source.forms:
        return "from a path"
    return f"here, {place.stat().st_size / 1e6:,.0f} MB" if place.exists() else "not here"


def _facts(dataset: Dataset) -> dict[str, Any]:
    import numpy as np

    many = len(dataset.classes)
    train, test = (np.bincount(part.labels, minlength=many).tolist() for part in (dataset.train, dataset.test))
    return {
        "name": dataset.name,
        "shape": list(dataset.shape),
        "train": len(dataset.train),
        "test": len(dataset.test),
        "mean": list(dataset.mean),
        "std": list(dataset.std),
        "fingerprint": dataset.fingerprint(),
        "classes": [
            {"name": name, "train": trained, "test": tested}
            for name, trained, tested in zip(dataset.classes, train, test, strict=True)
        ],
    }


def _print(facts: dict[str, Any]) -> None:
    channels, height, width = facts["shape"]
    click.echo(f"{facts['name']}: {len(facts['classes'])} classes")
    click.echo(f"images: {facts['train']:,} training and {facts['test']:,} test")
    click.echo(f"shape: {width} x {height} pixels, {channels} channel{'s' if channels > 1 else ''}")
    for key in ("mean", "std"):
        click.echo(f"{key}: {', '.join(f'{value:.4f}' for value in facts[key])}")
    click.echo(f"fingerprint: {facts['fingerprint']}\n")
    rows = [[row["name"], f"{row['train']:,}", f"{row['test']:,}"] for row in facts["classes"]]
    _print_table(["class", "train", "test"], rows, numbers=True)


def _print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False) -> None:
    """Prints rows in columns, the first with names; numbers are aligned right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, head in enumerate(heads):
        table.add_column(head, justify="right" if numbers and at else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
