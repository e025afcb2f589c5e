"""What `run` and `show` print and draw: one table, one figure, from journals alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from iblurry.experiment.run import Result


def console(as_json: bool) -> Console:
    """Bars and remarks go to the error stream where standard output is for a machine."""
    from rich.console import Console

    return Console(stderr=as_json)


def check_figure(path: Path | None) -> None:
    """Before the work, not after it."""
    if path is not None and path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"The figure {path.name!r} ends in {path.suffix!r}; end it in .png, .svg or .pdf.")


def show_results(results: Sequence[Result], figure: Path, *, as_json: bool) -> None:
    """The table on standard output, the figure in its file; PNG also as SVG, for papers."""
    from iblurry.experiment.figure import curves
    from iblurry.experiment.table import render, rows, to_json

    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(_group(result, results), []).append(result)
    table = rows({name: [r.metrics for r in group] for name, group in groups.items()})
    figure.parent.mkdir(parents=True, exist_ok=True)
    figures = [figure, figure.with_suffix(".svg")] if figure.suffix.lower() == ".png" else [figure]
    for path in figures:
        curves({name: [r.records for r in group] for name, group in groups.items()}, path, title=_title(results))
    if as_json:
        about: dict[str, Any] = {"table": json.loads(to_json(table)), "figures": [str(path) for path in figures]}
        runs = [
            {"folder": str(r.folder), "finished": r.summary is not None} | (r.summary or asdict(r.metrics))
            for r in results
        ]
        click.echo(json.dumps(about | {"runs": runs}, indent=2))
        return
    console(as_json).print(render(table))
    click.echo("Figure: " + ", ".join(map(str, figures)))


def _group(result: Result, results: Sequence[Result]) -> str:
    """Runs that differ only in their seed are one row, named by the method and, where that is not enough, the rest."""
    name = result.experiment.method.name
    alike = {_without_seed(r) for r in results if r.experiment.method.name == name}
    if len(alike) == 1:
        return name
    one = result.experiment
    return f"{name} ({one.dataset}, N={one.disjoint:g} M={one.blur:g}, K={one.memory}, {_without_seed(result)[:4]})"


def _without_seed(result: Result) -> str:
    from dataclasses import replace

    return replace(result.experiment, seed=0).digest


def _title(results: Sequence[Result]) -> str | None:
    settings = {(r.experiment.dataset, r.experiment.disjoint, r.experiment.blur) for r in results}
    if len(settings) > 1:
        return None
    ((dataset, disjoint, blur),) = settings
    return f"{Path(dataset).name}, i-Blurry-{disjoint:g}-{blur:g}"
