"""Accuracy class by class over the stream, as a map of few cells per run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iblurry.experiment.journal import NewClass, Query, Record, TaskEnd
from iblurry.studies.collect import Finished
from iblurry.studies.report.curves import thin
from iblurry.studies.report.runs import Block, Row

COLUMNS = 80  # moments of a map
LINES = 100  # classes of a map; of more, neighbours in order of arrival share a line
UNMET = "--"


def maps(block: Block) -> list[dict[str, Any]]:
    """One map per run that was asked anything: classes in order of arrival, moments from left to right."""
    return [
        {"row": number, "seed": run.result.experiment.seed} | _map(run.result.records)
        for number, row in enumerate(block.rows)
        for run in row.runs
        if _evaluations(run.result.records)
    ]


def final(block: Block) -> dict[str, Any]:
    """Accuracy of each class (percent) at the last evaluation of finished runs, mean over seeds, row by row."""
    rows = {row.name: _last(row) for row in block.rows if row.finished}
    labels = dict.fromkeys(label for found in rows.values() for label in found)
    return {
        "rows": list(rows),
        "lines": [[label, *(found.get(label) for found in rows.values())] for label in sorted(labels)],
    }


def _map(records: Sequence[Record]) -> dict[str, Any]:
    asked = _evaluations(records)
    moments = [asked[i] for i in thin(len(asked), COLUMNS)[1]]
    labels = _labels(records)
    table = np.full((len(labels), len(moments)), np.nan)  # (classes, moments)
    for column, one in enumerate(moments):
        total = np.array(one.total)
        table[: len(total), column] = np.where(total > 0, np.array(one.correct) / np.maximum(total, 1), np.nan)
    groups = np.array_split(np.arange(len(labels)), min(len(labels), LINES))
    lines = [_together(table[group]) for group in groups]
    return {
        "at": [one.at for one in moments],
        "labels": [_name([labels[i] for i in group]) for group in groups],
        "cells": ["".join(_cell(value) for value in line) for line in lines],
    }


def _evaluations(records: Sequence[Record]) -> list[Query] | list[TaskEnd]:
    """The queries; of a method that answers only at the end, that answer."""
    queries = [record for record in records if isinstance(record, Query)]
    return queries or [record for record in records if isinstance(record, TaskEnd)]


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


def _last(row: Row) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for run in row.finished:
        for label, accuracy in _last_of(run).items():
            found.setdefault(label, []).append(accuracy)
    return {label: round(float(np.mean(values)), 2) for label, values in found.items()}


def _last_of(run: Finished) -> dict[str, float]:
    records = run.result.records
    ends = [record for record in records if isinstance(record, TaskEnd)]
    if not ends:
        return {}
    last = ends[-1]
    shares = zip(_labels(records), last.correct, last.total, strict=False)  # one met since has no answers yet
    return {label: 100 * correct / total for label, correct, total in shares if total}
