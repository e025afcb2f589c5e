"""What the scripts of a report draw, as plain JSON: curves over samples, and maps of accuracy class by class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.experiment.journal import NewClass, Query, Record, Start, TaskEnd
from iblurry.experiment.metrics import a_last
from iblurry.studies.collect import CollectedRun
from iblurry.studies.figures.classes import find_evaluations
from iblurry.studies.figures.curves import changed_by_task_ends, shared_curve
from iblurry.studies.report.runs import ReportBlock, ReportRow

POINTS = 300  # of a line: more than a screen has room for are left out, evenly
UNEQUAL = 0.02  # of the stream: ends of tasks this near each other are one mark
MOMENTS = 80  # columns of a map
CLASSES = 100  # lines of a map; of more classes, neighbours in order of arrival share a line
UNMET = "--"

Json = dict[str, Any]


def chart_data(block: ReportBlock) -> Json:
    """Everything that is drawn over the samples of one configuration."""
    lines = [line for number, row in enumerate(block.rows) for line in _lines(number, row)]
    runs = [run.result.records for row in block.rows for run in row.runs if run.result.records]
    starts = [run[0] for run in runs if isinstance(run[0], Start)]
    thinned = max((line.pop("every") for line in lines), default=1)
    return {
        "samples": max((start.samples for start in starts), default=0),
        "ends": _ends(starts),
        "arrivals": _arrivals(run for row in block.rows for run in row.runs),
        "every": thinned,
        "lines": lines,
    }


def _lines(number: int, row: ReportRow) -> Iterable[Json]:
    """One of the finished runs, one of those under way."""
    for is_done, runs in ((True, row.finished), (False, row.unfinished)):
        records = [run.result.records for run in runs if run.result.metrics.queries]
        finals = [end for run in runs if (end := a_last(run.result.records)) is not None]
        seeds = [run.result.experiment.seed for run in runs if run.result.records]
        about: Json = {"row": number, "done": is_done, "seeds": seeds}
        if records and _share(records):
            yield about | {"kind": "curve"} | _curve(row.name, records)
        elif is_done and finals:  # it answers only once: a level line
            level = round(100 * float(np.mean(finals)), 2)
            start = runs[0].result.records[0]
            samples = start.samples if isinstance(start, Start) else 0
            yield about | {"kind": "level", "x": [0, samples], "y": [level, level], "after": [], "every": 1}


def _share(records: Sequence[Sequence[Record]]) -> bool:
    """Whether all were asked at one sample at least."""
    return bool(set.intersection(*({one.at for one in run if isinstance(one, Query)} for run in records)))


def _curve(name: str, records: Sequence[Sequence[Record]]) -> Json:
    at, mean, std = shared_curve(name, records)
    every, kept = thin(len(at))
    rates = np.array([_rates(run, at[kept]) for run in records])  # (runs, points)
    line: Json = {
        "x": at[kept].tolist(),
        "y": _percent(mean[kept]),
        "rate": _digits(np.exp(np.log(np.maximum(rates, 1e-12)).mean(axis=0))),
        "after": [point.round(2).tolist() for point in changed_by_task_ends(records)],
        "every": every,
    }
    if std is not None:
        line |= {"low": _percent((mean - std)[kept]), "high": _percent((mean + std)[kept])}
        line |= {"rate_low": _digits(rates.min(axis=0)), "rate_high": _digits(rates.max(axis=0))}
    return line


def thin(points: int, limit: int = POINTS) -> tuple[int, NDArray[np.int64]]:
    """Every how many points are kept, and which: counted from the last, which always is.

    >>> thin(5, limit=3)
    (2, array([0, 2, 4]))
    """
    every = max(1, -(-points // limit))
    return every, np.arange(points - 1, -1, -every)[::-1]


def _rates(run: Sequence[Record], at: NDArray[np.int64]) -> list[float]:
    rate = {record.at: record.rate for record in run if isinstance(record, Query)}
    return [rate[int(sample)] for sample in at]


def _ends(starts: Sequence[Start]) -> list[int]:
    """Where tasks end; nothing where the runs do not agree."""
    if not starts or len({len(start.ends) for start in starts}) > 1:
        return []
    table = np.array([start.ends for start in starts])  # (runs, tasks)
    agree = np.ptp(table, axis=0).max() <= UNEQUAL * table.max()
    return [int(end) for end in table.mean(axis=0).round()] if agree else []


def _arrivals(runs: Iterable[CollectedRun]) -> list[list[Any]]:
    """The first sample of each class, its name and the seeds of that order."""
    seeds: dict[tuple[int, str], set[int]] = {}
    for run in runs:
        for record in run.result.records:
            if isinstance(record, NewClass):
                seeds.setdefault((record.at, record.label), set()).add(run.result.experiment.seed)
    return [[at, label, sorted(of)] for (at, label), of in sorted(seeds.items())]


def _percent(values: NDArray[np.float64]) -> list[float]:
    return (100 * values).round(2).tolist()  # type: ignore[no-any-return]


def _digits(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def class_maps(block: ReportBlock) -> list[Json]:
    """One map per run that was asked anything: classes in order of arrival, moments from left to right."""
    return [
        {"row": number, "seed": run.result.experiment.seed} | _map(run.result.records)
        for number, row in enumerate(block.rows)
        for run in row.runs
        if find_evaluations(run.result.records)
    ]


def final_accuracies(block: ReportBlock) -> Json:
    """Accuracy of each class (percent) at the last evaluation of finished runs, mean over seeds, row by row."""
    rows = {row.name: _last(row) for row in block.rows if row.finished}
    labels = dict.fromkeys(label for found in rows.values() for label in found)
    return {
        "rows": list(rows),
        "lines": [[label, *(found.get(label) for found in rows.values())] for label in sorted(labels)],
    }


def _map(records: Sequence[Record]) -> Json:
    asked = find_evaluations(records)
    moments = [asked[i] for i in thin(len(asked), MOMENTS)[1]]
    labels = _labels(records)
    table = np.full((len(labels), len(moments)), np.nan)  # (classes, moments)
    for column, record in enumerate(moments):
        total = np.array(record.total)
        table[: len(total), column] = np.where(total > 0, np.array(record.correct) / np.maximum(total, 1), np.nan)
    groups = np.array_split(np.arange(len(labels)), min(len(labels), CLASSES))
    lines = [_together(table[group]) for group in groups]
    return {
        "at": [record.at for record in moments],
        "labels": [_name([labels[i] for i in group]) for group in groups],
        "cells": ["".join(_cell(value) for value in line) for line in lines],
    }


def _labels(records: Sequence[Record]) -> list[str]:
    """In order of exposure; a journal that is being written may name a class before it was asked about."""
    return [record.label for record in records if isinstance(record, NewClass)]


def _together(table: np.ndarray) -> np.ndarray:
    """The mean over the classes of a line, of those that were met."""
    met = ~np.isnan(table)
    return np.where(met.any(axis=0), np.nansum(table, axis=0) / np.maximum(met.sum(axis=0), 1), np.nan)


def _name(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"


def _cell(value: float) -> str:
    """Percent in two hexadecimal digits."""
    return UNMET if np.isnan(value) else f"{round(100 * value):02x}"


def _last(row: ReportRow) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for run in row.finished:
        for label, accuracy in _last_of(run).items():
            found.setdefault(label, []).append(accuracy)
    return {label: round(float(np.mean(values)), 2) for label, values in found.items()}


def _last_of(run: CollectedRun) -> dict[str, float]:
    records = run.result.records
    ends = [record for record in records if isinstance(record, TaskEnd)]
    if not ends:
        return {}
    last = ends[-1]
    shares = zip(_labels(records), last.correct, last.total, strict=False)  # one met since has no answers yet
    return {label: 100 * correct / total for label, correct, total in shares if total}
