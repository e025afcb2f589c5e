"""`iblurry split`: which class comes in which task, as a table, a figure or files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli import options
from iblurry.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from iblurry.data.dataset import Dataset
    from iblurry.streams.order import Order

WINDOWS = 10  # columns of the table where there are no tasks


@click.command()
@options.add(options.STREAM, "dataset", "stream", "tasks", "disjoint", "blur")
@click.option("--seed", metavar="S", type=click.IntRange(0), default=1, help="Same seed, same split.")
@options.add(options.STREAM, "mode", "published")
@options.import_option
@click.option("--figure", type=options.FIGURE, help="Draw it into this .png, .svg or .pdf.")
@click.option("--export", type=options.OutputFolder(), help="Write it as published files.")
@options.data_home_option
@options.json_option
def split(
    dataset: str,
    stream: str | None,
    seed: int,
    published: Path | None,
    figure: Path | None,
    export: Path | None,
    data_home: Path | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Show a stream's split, usually i-Blurry-N-M: the samples of each class in each task.

    A split depends only on the data set's labels, the numbers and the seed.
    """
    from iblurry.analysis.figures.order import draw_order
    from iblurry.data.load import load
    from iblurry.experiment.experiment import Experiment
    from iblurry.experiment.settings import is_known
    from iblurry.streams import published as published_files
    from iblurry.streams.order import is_disjoint
    from iblurry.streams.stream import IBlurry, Published, make_stream

    given = {name: value for name, value in fields.items() if value is not None}
    if stream is None and published is None and not is_known(dataset):
        chosen = Experiment.of("er", dataset, **given).stream  # as `iblurry run` chooses it by the data
    else:
        chosen = make_stream(None if stream is None else options.parse_stream(stream), published, **given)
    data = load(dataset, data_home)
    order = chosen.order(data, seed)

    notes = []
    drawn = chosen if isinstance(chosen, IBlurry | Published) else None
    if drawn and is_disjoint(n := drawn.disjoint, m := drawn.blur) and (n, m) != (100, 0):
        notes.append(f"N={n:g} with M={m:g} has no blurry classes: this is the disjoint split (N=100, M=0).")
    if dropped := len(data.train) - len(order):
        left = len(set(data.train.labels.tolist())) - len(order.classes)
        notes.append(f"{dropped:,} of {len(data.train):,} samples are left out; classes left out: {left}.")
    is_divided = chosen.has_boundaries and len(order.tasks) > 1
    if not is_divided:
        notes.append("There are no task boundaries, so A_avg and F_last are undefined.")
    if export is not None:
        if drawn is None:
            raise InputError(f"--export writes i-Blurry sets only, not {chosen.title}; leave --export out.")
        is_cut = isinstance(chosen, IBlurry) and chosen.mode == "compatible"
        n = published_files.fitting_n(order) if is_cut else drawn.disjoint
        files = published_files.export(order, data, export, seed=seed, n=n, m=drawn.blur)
        notes.append(f"Wrote {files[0].name} and {len(files) - 1} more files to {export}.")
    if figure is not None:
        draw_order(order, data, figure, in_tasks=is_divided)
        notes.append(f"Drew {figure}.")

    if as_json:
        asked = {"dataset": data.name, "seed": seed, "stream": chosen.to_json()}
        click.echo(json.dumps({**asked, "notes": notes, **_facts(order, data)}, indent=2))
    else:
        from rich.console import Console
        from rich.measure import Measurement

        console = Console()
        table = _table(order, data, f"{data.name}: {chosen.title}, seed {seed}", in_tasks=is_divided)
        whole = Measurement.get(console, console.options.update(max_width=100_000), table).maximum
        console.width = max(console.width, whole)  # a count cut short would be a wrong count
        console.print(table)
        for note in notes:
            console.print(note, soft_wrap=True, markup=False, highlight=False)


def _facts(order: Order, data: Dataset) -> dict[str, object]:
    rows = zip(order.classes, order.roles, order.counts(data.train.labels).tolist(), strict=True)
    classes = [
        {"label": label, "class": data.classes[c], "role": role, "counts": counts, "total": sum(counts)}
        for label, (c, role, counts) in enumerate(rows)
    ]
    return {"samples": len(order), "task_sizes": [len(task) for task in order.tasks], "classes": classes}


def _table(order: Order, data: Dataset, title: str, *, in_tasks: bool) -> Table:
    """Classes in label order; the task with most of a class in bold. Or else in ten windows of equal length."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_footer=True)
    order = order if in_tasks else order.in_windows(WINDOWS)
    counts = order.counts(data.train.labels)
    table.add_column("class", footer="all", no_wrap=True)
    if in_tasks:
        table.add_column("role")
    for t, end in enumerate(order.ends):
        heading = f"task {t + 1}" if in_tasks else f"to {end:,}"
        table.add_column(heading, justify="right", footer=f"{len(order.tasks[t]):,}")
    table.add_column("total", justify="right", footer=f"{len(order):,}")
    for c, role, row in zip(order.classes, order.roles, counts, strict=True):
        cells = [f"{count:,}" if count else "·" for count in row]
        cells[row.argmax()] = f"[bold]{cells[row.argmax()]}[/bold]"
        names = [escape(data.classes[c]), *([role] if in_tasks else [])]
        table.add_row(*names, *cells, f"{row.sum():,}", end_section=table.row_count + 1 == order.disjoint)
    return table
