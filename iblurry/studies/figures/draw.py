"""The kinds of figures of a study, each drawn from the finished runs of its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from iblurry.errors import InputError
from iblurry.experiment.metrics import NO_BOUNDARIES, has_boundaries
from iblurry.experiment.result import Result
from iblurry.studies.figures.classes import class_accuracies
from iblurry.studies.figures.composition import draw_composition, memory_composition
from iblurry.studies.figures.curves import draw_curves, draw_rates
from iblurry.studies.figures.flops import draw_flops
from iblurry.studies.figures.forgetting import draw_forgetting
from iblurry.studies.figures.metrics import draw_bars, draw_sweep
from iblurry.studies.paper import PaperNumber, display_name
from iblurry.studies.study import Study
from iblurry.studies.tables.table import StudyTable, TableCell, training_tflops

WITH_METRIC = ("sweep", "bars", "flops")  # kinds that show one metric
WITH_X = ("curves",)  # kinds whose axis may be samples or flops


def draw_study(table: StudyTable, kind: str, path: Path, *, x: str = "samples") -> None:
    """Draw what is finished of a study, as a kind of FIGURE_KINDS; those of WITH_METRIC show the first metric.

    `x` is the axis of those in WITH_X: "samples" or "flops".
    """
    check_kind(table.study, table.columns, kind)
    cells = [cell for cell in table.cells.values() if cell.metric is table.metrics[0] and cell.runs]
    if not cells:
        raise InputError(f"The study {table.study.name} has no finished run to draw; run some of it first.")
    title = f"{table.study.title}: {table.settings}" if table.settings else table.study.title
    FIGURE_KINDS[kind](cells, path, title, **({"x": x} if x != "samples" else {}))


def check_kind(study: Study, columns: Sequence[str], kind: str) -> None:
    """Raises where a study with these columns has nothing to show in a figure of this kind."""
    if kind == "sweep" and len(columns) < 2:
        if columns[0]:
            said = f"chosen to be {columns[0]} alone varies nothing; choose more columns with --only, or leave it out"
        else:
            said = "varies nothing but the method; draw curves or bars, or a study such as memory or disjoint"
        raise InputError(f"A sweep is drawn over what a study varies, and the study {study.name} {said}.")


def default_kind(study: Study, columns: int) -> str:
    """What suits a study with so many columns."""
    if study.name == "ablation":
        return "bars"
    return "sweep" if columns > 1 else "curves"


def _draw_journals(draw: Callable[..., None], cells: list[TableCell], path: Path, title: str, **more: str) -> None:
    columns: dict[str, dict[str, list[list[Any]]]] = {}
    for cell in cells:
        columns.setdefault(cell.column, {})[cell.row] = [result.records for result in cell.runs.values()]
    draw(columns, path, title=title, **more)


def _draw_metric(draw: Callable[..., None], cells: list[TableCell], path: Path, title: str) -> None:
    """Cells without a number (joint training has no curve) are left out, and the paper's probable copy errors."""
    numbers: dict[str, dict[str, list[float]]] = {}
    paper: dict[str, dict[str, PaperNumber]] = {}
    for cell in cells:
        if cell.values:
            numbers.setdefault(cell.column, {})[cell.row] = list(cell.values.values())
        if cell.paper is not None and cell.paper.warning is None:
            paper.setdefault(cell.column, {})[cell.row] = cell.paper
    if not numbers and not any(has_boundaries(run.records) for cell in cells for run in cell.runs.values()):
        raise InputError(f"{NO_BOUNDARIES}, as in these runs; draw a_auc or a_last.")
    draw(numbers, path, metric=cells[0].metric.name, paper=paper, title=title)


def _draw_flops(cells: list[TableCell], path: Path, title: str) -> None:
    """Cells without the number, or of runs that did not count, are left out."""
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for cell in cells:
        spent = [training_tflops(result) for result in cell.runs.values()]
        if cell.values and all(spent):
            pairs = zip(spent, cell.values.values(), strict=True)
            points.setdefault(cell.column, {})[cell.row] = [(tflops or 0.0, value) for tflops, value in pairs]
    draw_flops(points, path, metric=cells[0].metric.name, title=title)


def _draw_forgetting(cells: list[TableCell], path: Path, title: str) -> None:
    shown = {name: class_accuracies(result.records) for name, result in _first_seeds(cells).items()}
    draw_forgetting(shown, path, title=title)


def _draw_composition(cells: list[TableCell], path: Path, title: str) -> None:
    memories = {name: memory_composition(result.records) for name, result in _first_seeds(cells).items()}
    known = {name: memory for name, memory in memories.items() if memory is not None}
    if not known:
        raise InputError("The journals of these runs do not say what the memory held; run them again to have it noted.")
    draw_composition(known, path, title=title)


def _first_seeds(cells: list[TableCell]) -> dict[str, Result]:
    """One run per cell: seeds meet classes in another order, so they cannot be laid upon each other."""
    found = {}
    for cell in cells:
        seed, result = next(iter(cell.runs.items()))
        found[", ".join(filter(None, [display_name(cell.row), cell.column, f"seed {seed}"]))] = result
    return found


FIGURE_KINDS: dict[str, Callable[..., None]] = {  # of cells, a path and a title
    "curves": partial(_draw_journals, draw_curves),
    "sweep": partial(_draw_metric, draw_sweep),
    "bars": partial(_draw_metric, draw_bars),
    "flops": _draw_flops,
    "rates": partial(_draw_journals, draw_rates),
    "forgetting": _draw_forgetting,
    "composition": _draw_composition,
}
