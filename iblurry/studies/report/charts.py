"""What the scripts of a report draw, as plain JSON: curves over samples, and maps of accuracy class by class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.figures.classes import class_accuracies, find_evaluations
from iblurry.analysis.figures.curves import changed_by_task_ends, shared_curve
from iblurry.analysis.figures.style import shared_task_ends
from iblurry.experiment.journal import NewClass, Query, Record, Start, TaskEnd
from iblurry.experiment.metrics import a_last
from iblurry.studies.report.data import ReportBlock, ReportRow, stream_length

POINTS = 300  # of a line: more than a screen has room for are left out, evenly
MOMENTS = 80  # columns of a map
CLASSES = 100  # lines of a map; of more classes, neighbours in order of arrival share a line
UNMET = "--"  # else a cell is percent in two hexadecimal digits

Json = dict[str, Any]


def chart_data(block: ReportBlock) -> Json:
    """Everything that is drawn over the samples of one configuration."""
    lines = [line for number, row in enumerate(block.rows) for line in _lines(number, row)]
    ends = [record.ends for run in block.runs for record in run.records if isinstance(record, Start)]
    every = max((line.pop("every") for line in lines), default=1)
    return {
        "samples": max(map(stream_length, block.runs)),
        "ends": [int(end) for end in shared_task_ends(ends).round()],
        "arrivals": _arrivals(block),
        "every": every,
        "lines": lines,
    }


def _lines(number: int, row: ReportRow) -> Iterable[Json]:
    """A line of the finished runs, and one of those under way."""
    for is_done, runs in ((True, row.finished), (False, row.unfinished)):
        journals = [run.records for run in runs if run.metrics.queries]
        asked = [{record.at for record in journal if isinstance(record, Query)} for journal in journals]
        finals = [end for run in runs if (end := a_last(run.records)) is not None]
        seeds = [run.experiment.seed for run in runs if run.records]
        about: Json = {"row": number, "done": is_done, "seeds": seeds}
        if asked and set.intersection(*asked):
            yield about | {"kind": "curve"} | _curve(row.name, journals)
        elif is_done and finals:  # it answers only once: a level line
            level = round(100 * float(np.mean(finals)), 2)
            yield about | {
                "kind": "level",
                "x": [0, stream_length(runs[0])],
                "y": [level, level],
                "after": [],
                "every": 1,
            }


def _curve(name: str, records: Sequence[Sequence[Record]]) -> Json:
    at, mean, std = shared_curve(name, records)
    every, kept = thin(len(at))
    asked = [{record.at: record.rate for record in run if isinstance(record, Query)} for run in records]
    rates = np.array([[rate[int(sample)] for sample in at[kept]] for rate in asked])  # (runs, points)
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


def _arrivals(block: ReportBlock) -> list[list[Any]]:
    """The first sample of each class, its name and the seeds of that order."""
    seeds: dict[tuple[int, str], set[int]] = {}
    for run in block.runs:
        for record in run.records:
            if isinstance(record, NewClass):
                seeds.setdefault((record.at, record.label), set()).add(run.experiment.seed)
    return [[at, label, sorted(found)] for (at, label), found in sorted(seeds.items())]


def _percent(values: NDArray[np.float64]) -> list[float]:
    return (100 * values).round(2).tolist()  # type: ignore[no-any-return]


def _digits(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def class_maps(block: ReportBlock) -> list[Json]:
    """One map per run that was asked anything: classes in order of arrival, moments from left to right."""
    return [
        {"row": number, "seed": run.experiment.seed} | _map(run.records)
        for number, row in enumerate(block.rows)
        for run in row.runs
        if find_evaluations(run.records)
    ]


def final_accuracies(block: ReportBlock) -> dict[str, dict[str, float]]:
    """By row and class: accuracy (percent) at the last evaluation of finished runs, mean over seeds."""
    rows = {}
    for row in (row for row in block.rows if row.finished):
        found: dict[str, list[float]] = {}
        for run in row.finished:
            ends = [record for record in run.records if isinstance(record, TaskEnd)]
            labels = [record.label for record in run.records if isinstance(record, NewClass)]
            for last in ends[-1:]:  # a class met since has no answers yet
                for label, correct, total in zip(labels, last.correct, last.total, strict=False):
                    if total:
                        found.setdefault(label, []).append(100 * correct / total)
        rows[row.name] = {label: round(float(np.mean(values)), 2) for label, values in found.items()}
    return rows


def _map(records: Sequence[Record]) -> Json:
    found = class_accuracies(records)
    moments = thin(len(found.at), MOMENTS)[1]
    labels, table = found.classes, found.accuracy[:, moments]  # (classes, moments)
    lines, names = [], []
    for group in np.array_split(np.arange(len(labels)), min(len(labels), CLASSES)):
        met = np.sum(~np.isnan(table[group]), axis=0)  # classes
        mean = np.nansum(table[group], axis=0) / np.maximum(met, 1)
        cells = zip(mean, met, strict=True)
        lines.append("".join(f"{round(percent):02x}" if known else UNMET for percent, known in cells))
        names.append(labels[group[0]] if len(group) == 1 else f"{labels[group[0]]} to {labels[group[-1]]}")
    return {"at": [found.at[moment] for moment in moments], "labels": names, "cells": lines}
