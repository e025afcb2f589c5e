"""The kinds of figures of a study, each drawn from the finished runs of its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from iblurry.analysis.describe import display_name
from iblurry.analysis.figures.classes import draw_composition, draw_forgetting
from iblurry.analysis.figures.curves import draw_curves, draw_rates
from iblurry.analysis.figures.metrics import draw_bars, draw_flops, draw_sweep
from iblurry.analysis.table import PaperNumber, Table, training_tflops
from iblurry.errors import InputError
from iblurry.experiment.metrics import NO_BOUNDARIES, has_boundaries

WITH_METRIC = ("sweep", "bars", "flops")  # kinds that show one metric
WITH_X = ("curves",)  # kinds whose axis may be samples or flops


def draw_study(table: Table, kind: str, path: Path, *, x: str = "samples") -> None:
    """Draw what is finished of a study, as a kind of FIGURE_KINDS; those of WITH_METRIC show the first metric.

    `x` is the axis of those in WITH_X: "samples" or "flops".
    """
    check_kind(table.about["study"], table.columns, kind)
    if not table.all_runs:
        raise InputError(f"The study {table.about['study']} has no finished run to draw; run some of it first.")
    FIGURE_KINDS[kind](table, path, **({"x": x} if x != "samples" else {}))


def check_kind(study: str, columns: Sequence[str], kind: str) -> None:
    """Refuse a figure of this kind where a study with these columns has nothing to show in it."""
    if kind == "sweep" and len(columns) < 2:
        if columns[0]:
            said = f"chosen to be {columns[0]} alone varies nothing; choose more columns with --only, or leave it out"
        else:
            said = "varies nothing but the method; draw curves or bars, or a study such as memory or disjoint"
        raise InputError(f"A sweep is drawn over what a study varies, and the study {study} {said}.")


def default_kind(study: str, columns: int) -> str:
    """Choose what suits a study with so many columns."""
    if study == "ablation":
        return "bars"
    return "sweep" if columns > 1 else "curves"


def _draw_journals(draw: Callable[..., None], table: Table, path: Path, **more: str) -> None:
    columns: dict[str, dict[str, list[list[Any]]]] = {}
    for row, column, _, run in table.all_runs:
        columns.setdefault(column, {}).setdefault(row, []).append(run.records)
    draw(columns, path, title=table.caption, **more)


def _draw_metric(draw: Callable[..., None], table: Table, path: Path) -> None:
    """Cells without a number (joint training has no curve) are left out, and the paper's probable copy errors."""
    metric = table.metrics[0].name
    by_seed = {column: table.by_seed(column, metric) for column in table.columns}
    numbers = {
        column: {row: [*seeds.values()] for row, seeds in rows.items()} for column, rows in by_seed.items() if rows
    }
    paper: dict[str, dict[str, PaperNumber]] = {}
    for (row, column), cell in table.cells.xs(metric, level="metric").iterrows():
        if cell["paper"] is not None and cell["paper"].warning is None and table.runs.get((row, column)):
            paper.setdefault(column, {})[row] = cell["paper"]
    if not numbers and not any(has_boundaries(run.records) for *_, run in table.all_runs):
        raise InputError(f"{NO_BOUNDARIES}, as in these runs; draw a_auc or a_last.")
    draw(numbers, path, metric=metric, paper=paper, title=table.caption)


def _draw_flops(table: Table, path: Path) -> None:
    """Cells without the number, or of runs that did not count, are left out."""
    metric = table.metrics[0].name
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for column in table.columns:
        for row, values in table.by_seed(column, metric).items():
            spent = {seed: training_tflops(run) or 0.0 for seed, run in table.runs[row, column].items()}
            if all(spent.values()):
                points.setdefault(column, {})[row] = [(spent[seed], value) for seed, value in values.items()]
    draw_flops(points, path, metric=metric, title=table.caption)


def _draw_first_seeds(draw: Callable[..., None], table: Table, path: Path) -> None:
    """One run per cell: seeds meet classes in another order, so they cannot be laid upon each other."""
    found = {}
    for (row, column), runs in table.runs.items():
        for seed in [*runs][:1]:
            found[", ".join(filter(None, [display_name(row), column, f"seed {seed}"]))] = runs[seed].records
    draw(found, path, title=table.caption)


FIGURE_KINDS: dict[str, Callable[..., None]] = {  # of a table and a path
    "curves": partial(_draw_journals, draw_curves),
    "sweep": partial(_draw_metric, draw_sweep),
    "bars": partial(_draw_metric, draw_bars),
    "flops": _draw_flops,
    "rates": partial(_draw_journals, draw_rates),
    "forgetting": partial(_draw_first_seeds, draw_forgetting),
    "composition": partial(_draw_first_seeds, draw_composition),
}
