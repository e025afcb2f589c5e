"""The kinds of figures of a study, each drawn from finished runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.result import Result
from iblurry.studies.figures.bars import bars
from iblurry.studies.figures.cells import Runs, arranged, numbers, paper_numbers, written
from iblurry.studies.figures.classes import classwise
from iblurry.studies.figures.composition import composition, memory
from iblurry.studies.figures.curves import curves
from iblurry.studies.figures.forgetting import forgetting
from iblurry.studies.figures.rates import rates, trace
from iblurry.studies.figures.sweep import sweep
from iblurry.studies.run_rows import settings
from iblurry.studies.study import Planned, Study


@dataclass(frozen=True)
class Drawing:
    """What a figure is made of, and where it goes."""

    planned: Sequence[Planned]
    runs: Runs
    metric: str
    path: Path
    title: str


def draw(kind: str, study: Study, found: Mapping[Planned, Result], path: Path, *, metric: str | None = None) -> None:
    """Draw a study's finished runs, as `found` finds them; `metric` is the study's first unless told."""
    check(kind, metric)
    if not found:
        raise InputError(f"The study {study.name} has no finished run to draw; run some of it first.")
    planned = list(found)
    common = settings([one.experiment for one in planned])
    title = f"{study.title}: {common}" if common else study.title
    KINDS[kind](Drawing(planned, arranged(found), metric or study.metrics[0], path, title))


def check(kind: str, metric: str | None) -> None:
    """Raises unless there is such a kind of figure, and it shows a metric if one is asked for."""
    if kind not in KINDS:
        raise UnknownNameError("kind of figure", kind, KINDS)
    if metric is not None:
        written(metric)
        if kind not in METRIC:
            raise InputError(f"A figure of {kind} shows no metric; leave {metric} out, or draw {' or '.join(METRIC)}.")


def usual_kind(study: Study, columns: int) -> str:
    """What suits a study with so many columns."""
    if study.name == "ablation":
        return "bars"
    return "sweep" if columns > 1 else "curves"


def _curves(one: Drawing) -> None:
    curves(_each(one.runs, lambda result: result.records), one.path, title=one.title)


def _rates(one: Drawing) -> None:
    rates(_each(one.runs, lambda result: trace(result.records)), one.path, title=one.title)


def _sweep(one: Drawing) -> None:
    paper = paper_numbers(one.planned, one.metric)
    sweep(numbers(one.runs, one.metric), one.path, metric=one.metric, paper=paper, title=one.title)


def _bars(one: Drawing) -> None:
    paper = paper_numbers(one.planned, one.metric)
    bars(numbers(one.runs, one.metric), one.path, metric=one.metric, paper=paper, title=one.title)


def _forgetting(one: Drawing) -> None:
    shown = {name: classwise(result.records) for name, result in _firsts(one.runs).items()}
    forgetting(shown, one.path, title=one.title)


def _composition(one: Drawing) -> None:
    memories = {name: memory(result.records) for name, result in _firsts(one.runs).items()}
    known = {name: held for name, held in memories.items() if held is not None}
    if not known:
        raise InputError("The journals of these runs do not say what the memory held; run them again to have it noted.")
    composition(known, one.path, title=one.title)


def _firsts(runs: Runs) -> dict[str, Result]:
    """One run per cell: seeds meet classes in another order, so they cannot be laid upon each other."""
    first = {}
    for column, rows in runs.items():
        for row, results in rows.items():
            words = [row, *([column] if column else []), f"seed {results[0].experiment.seed}"]
            first[", ".join(words)] = results[0]
    return first


def _each(runs: Runs, what: Callable[[Result], Any]) -> dict[str, dict[str, list[Any]]]:
    return {
        column: {row: [what(result) for result in results] for row, results in rows.items()}
        for column, rows in runs.items()
    }


METRIC = ("sweep", "bars")  # kinds that show one
KINDS: dict[str, Callable[[Drawing], None]] = {
    "curves": _curves,
    "sweep": _sweep,
    "bars": _bars,
    "rates": _rates,
    "forgetting": _forgetting,
    "composition": _composition,
}
