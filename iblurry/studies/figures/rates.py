"""The learning rate over samples seen, one line per method, with marks where classes were met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import InputError
from iblurry.experiment.journal import NewClass, Record, Start
from iblurry.studies.figures.cells import rows_of
from iblurry.studies.figures.classes import answers
from iblurry.studies.run_marks import mark_arrivals, mark_tasks, sample_axis
from iblurry.studies.run_style import legend_below, look, outer, panels, plain, sheet, side_by_side

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACROSS = 2
MARKERS_PER_LINE = 10


@dataclass(frozen=True)
class Trace:
    """A run's learning rate."""

    at: Sequence[int]  # samples seen
    rate: Sequence[float]
    ends: Sequence[int]  # of the tasks
    met: Sequence[int]  # first samples of the classes


def trace(records: Sequence[Record]) -> Trace:
    """From a journal."""
    known = answers(records)
    return Trace(
        at=[record.at for record in known],
        rate=[record.rate for record in known],
        ends=next(record.ends for record in records if isinstance(record, Start)),
        met=[record.at for record in records if isinstance(record, NewClass)],
    )


def rates(columns: Mapping[str, Mapping[str, Sequence[Trace]]], path: Path | str, *, title: str | None = None) -> None:
    """Draw runs, by column and method, on a logarithmic axis.

    A line is the geometric mean over seeds where they share a point, its band from their least to their greatest. A
    rate of zero has no place on the axis and leaves a gap.
    """
    methods = rows_of(columns)
    if not methods:
        raise InputError("There are no runs to draw; give at least one.")
    across = min(ACROSS, len(columns))
    below = side_by_side(12 + max(map(len, methods)))
    high = (2.9 if across == 1 else 2.0) * -(-len(columns) // across)
    with sheet(path, high + 0.6 + 0.18 * -(-(len(methods) + 1) // below)) as figure:
        places = panels(figure, len(columns), columns=across, sharey=True)
        for axes, (column, groups) in zip(places, columns.items(), strict=True):
            axes.set_yscale("log")
            for method, traces in groups.items():
                _draw(axes, methods.index(method), method, traces)
            everything = [one for traces in groups.values() for one in traces]
            narrow = across > 1 and max(len(one.ends) for one in everything) > 5
            mark_tasks(axes, [one.ends for one in everything], word="" if narrow else "task ")
            mark_arrivals(axes, [at for one in everything for at in one.met])
            sample_axis(axes, narrow=across > 1)
            axes.grid(axis="y", color="0.92", linewidth=0.6, zorder=0)
            axes.set_axisbelow(True)
            axes.set_title(column, fontsize=9, parse_math=False)
        left, lowest = outer(places, across)
        for axes in left:
            axes.set_ylabel("learning rate")
        for axes in lowest:
            axes.set_xlabel("samples seen")
        if title is not None:
            figure.suptitle(title, fontsize=10, parse_math=False)
        legend_below(figure, below)


def shared_rate(method: str, traces: Sequence[Trace]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where all runs have a rate, and their rates there: (runs, points), not a number where it is zero."""
    at = reduce(np.intersect1d, [np.array(one.at, dtype=np.int64) for one in traces])
    if not len(at):
        raise InputError(f"The runs of {method!r} share no query point; let them run on, or query them equally often.")
    table = np.array([np.array(one.rate, dtype=np.float64)[np.isin(one.at, at)] for one in traces])
    return at, np.where(table > 0, table, np.nan)


def _draw(axes: Axes, number: int, method: str, traces: Sequence[Trace]) -> None:
    at, table = shared_rate(method, traces)
    mine, step = look(number), max(1, round(len(at) / MARKERS_PER_LINE))
    axes.plot(
        at,
        np.exp(np.log(table).mean(axis=0)),
        color=mine.colour,
        linestyle=mine.line,
        linewidth=1.2,
        marker=mine.marker,
        markersize=4,
        markeredgecolor="white",
        markeredgewidth=0.5,
        markevery=((number * step // 3) % step, step),  # staggered: rates often coincide
        label=plain(method),
        zorder=3,
    )
    if len(traces) > 1:
        edges = table.min(axis=0), table.max(axis=0)
        axes.fill_between(at, *edges, color=mine.colour, alpha=0.18, linewidth=0, zorder=2)
