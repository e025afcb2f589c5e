"""The lines of a report: accuracy and learning rate to samples seen, thinned, with their spread and their marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iblurry.experiment.journal import NewClass, Query, Record, Start, TaskEnd
from iblurry.experiment.metrics import a_last
from iblurry.studies.collect import Finished
from iblurry.studies.report.runs import Block, Row
from iblurry.studies.run_figure import shared_curve

POINTS = 300  # of a line: more than a screen has room for are left out, evenly
CHANGED = 0.01  # what a boundary must change to be marked
UNEQUAL = 0.02  # of the stream: ends of tasks this near each other are one mark

Line = dict[str, Any]


def chart(block: Block) -> dict[str, Any]:
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


def _lines(number: int, row: Row) -> Iterable[Line]:
    """One of the finished runs, one of those under way."""
    for is_done, runs in ((True, row.finished), (False, row.unfinished)):
        records = [run.result.records for run in runs if run.result.metrics.queries]
        finals = [end for run in runs if (end := a_last(run.result.records)) is not None]
        seeds = [run.result.experiment.seed for run in runs if run.result.records]
        about: Line = {"row": number, "done": is_done, "seeds": seeds}
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


def _curve(name: str, records: Sequence[Sequence[Record]]) -> Line:
    at, mean, std = shared_curve(name, records)
    every, kept = thin(len(at))
    rates = np.array([_rates(run, at[kept]) for run in records])  # (runs, points)
    line: Line = {
        "x": at[kept].tolist(),
        "y": _percent(mean[kept]),
        "rate": _digits(np.exp(np.log(np.maximum(rates, 1e-12)).mean(axis=0))),
        "after": _after(records),
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


def _after(records: Sequence[Sequence[Record]]) -> list[list[float]]:
    """What the ends of tasks changed, the mean over runs; nothing where they changed nothing."""
    found: dict[int, list[tuple[float, float]]] = {}
    changed = False
    for run in records:
        asked = {record.at: record.accuracy for record in run if isinstance(record, Query)}
        for end in (record for record in run if isinstance(record, TaskEnd)):
            found.setdefault(end.task, []).append((end.at, 100 * end.accuracy))
            changed |= abs(end.accuracy - asked.get(end.at, end.accuracy)) > CHANGED
    points = [np.mean(values, axis=0).round(2).tolist() for values in found.values()]
    return points if changed else []


def _ends(starts: Sequence[Start]) -> list[int]:
    """Where tasks end; nothing where the runs do not agree."""
    if not starts or len({len(start.ends) for start in starts}) > 1:
        return []
    table = np.array([start.ends for start in starts])  # (runs, tasks)
    agree = np.ptp(table, axis=0).max() <= UNEQUAL * table.max()
    return [int(end) for end in table.mean(axis=0).round()] if agree else []


def _arrivals(runs: Iterable[Finished]) -> list[list[Any]]:
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
