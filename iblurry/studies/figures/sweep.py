"""A metric over what a study varies, one line per method, with the paper's numbers beside ours."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import InputError
from iblurry.studies.figures.cells import Cells, Papers, mean_and_spread, rows_of, written
from iblurry.studies.paper import Number
from iblurry.studies.run_style import legend_below, look, plain, sheet, side_by_side

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VARIED = {  # a column is called name=value
    "N": "disjoint classes N (%)",
    "M": "blur level M (%)",
    "K": "memory K (samples)",
    "T": "number of tasks T",
}
LEAST = 0.1  # of the axis, between neighbours that are to be told apart
LETTERS = 64  # that fit below the axis


def sweep(
    cells: Cells, path: Path | str, *, metric: str = "a_auc", paper: Papers | None = None, title: str | None = None
) -> None:
    """Draw the means over seeds by column; bars are one sample standard deviation either way.

    Hollow markers, each to the right of ours, are the paper's. Numbers stand to scale: linear, else logarithmic, and
    evenly only where neither keeps them apart; names stand evenly. Methods are set a little apart from each other.
    """
    name, methods = written(metric), rows_of(cells)
    if not methods:
        raise InputError(f"No run has a number for {metric}; let some come to their end first.")
    columns = list(cells)
    at, scale = places(columns)
    below = side_by_side(12 + max(map(len, methods)))
    theirs = {column: {row: n for row, n in rows.items() if row in methods} for column, rows in (paper or {}).items()}
    with sheet(path, 3.4 + 0.18 * -(-(len(methods) + any(theirs.values())) // below)) as figure:
        axes = figure.add_subplot()
        step = min(0.022, 0.3 / len(methods) * _nearest(at))  # two places per method: ours and the paper's
        for number, method in enumerate(methods):
            left = at + (2 * number - len(methods) + 0.5) * step
            ours = [mean_and_spread(cells[column].get(method, [float("nan")])) for column in columns]
            _draw(axes, number, left, ours, label=plain(method), linestyle=look(number).line)
            published = [_pair(theirs.get(column, {}).get(method)) for column in columns]
            if not np.isnan(published).all():
                _draw(axes, number, left + step, published, linestyle="none", markerfacecolor="white")
        if any(theirs.values()):
            axes.errorbar([], [], fmt="o", color="0.4", markerfacecolor="white", markersize=4.5, label="the paper's")
        _dress(axes, columns, at, scale)
        axes.set_xlim(-0.04 - step * len(methods), 1.04 + step * len(methods))
        axes.set_ylabel(name)
        if title is not None:
            axes.set_title(title, fontsize=10, parse_math=False)
        legend_below(figure, below)


def places(columns: Sequence[str]) -> tuple[NDArray[np.float64], str]:
    """Where columns stand between 0 and 1, and the scale in words.

    >>> places(["K=100", "K=1000", "K=10000"])[1]
    'log scale'
    """
    even = np.linspace(0, 1, len(columns)) if len(columns) > 1 else np.array([0.5])
    values = _values(columns)
    if values is None or len(columns) == 1:
        return even, ""
    scales: dict[str, Any] = {"": values} | ({"log scale": np.log(values)} if (values > 0).all() else {})
    for scale, numbers in scales.items():
        at = (numbers - numbers.min()) / max(np.ptp(numbers), 1e-9)
        if _nearest(at) >= min(LEAST, 0.5 / len(columns)):
            return at, scale
    return even, "evenly spaced"


def _draw(
    axes: Axes, number: int, at: NDArray[np.float64], points: Sequence[tuple[float, float]], **changes: Any
) -> None:
    mean, spread = np.array(points).T
    order = np.argsort(at)
    mine = look(number)
    usual: dict[str, Any] = {"color": mine.colour, "marker": mine.marker, "markersize": 4.5, "linewidth": 1.1}
    bars: dict[str, Any] = {"elinewidth": 0.9, "capsize": 1.6, "markeredgewidth": 0.9, "zorder": 3}
    axes.errorbar(at[order], mean[order], yerr=spread[order], **usual | bars | changes)


def _dress(axes: Axes, columns: Sequence[str], at: NDArray[np.float64], scale: str) -> None:
    numeric = _values(columns) is not None
    room = max(6, int(LETTERS * min(_nearest(at), 1)))
    names = [f"{float(column.partition('=')[2]):,g}" if numeric else column for column in columns]
    long = max(map(len, " ".join(names).split() or [""])) > room
    labels = names if long else [textwrap.fill(text, room, break_long_words=False) for text in names]
    turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axes.set_xticks(at, labels, parse_math=False, fontsize=8 if not numeric else 9, **turned)
    if numeric:
        what = columns[0].partition("=")[0]
        axes.set_xlabel(f"{VARIED.get(what, plain(what))}{f', {scale}' if scale else ''}")
    axes.grid(axis="y", color="0.92", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def _values(columns: Sequence[str]) -> NDArray[np.float64] | None:
    """The numbers of columns that vary one thing; None where they are names."""
    what = {column.partition("=")[0] for column in columns}
    try:
        numbers = [float(column.partition("=")[2]) for column in columns]
    except ValueError:
        return None
    return np.array(numbers) if len(what) == 1 and len(set(numbers)) == len(numbers) else None


def _nearest(at: NDArray[np.float64]) -> float:
    return float(np.diff(np.sort(at)).min()) if len(at) > 1 else 1.0


def _pair(number: Number | None) -> tuple[float, float]:
    if number is None:
        return float("nan"), float("nan")
    return number.mean, float("nan") if number.std is None else number.std
