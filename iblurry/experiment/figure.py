"""The figure of a comparison: accuracy to samples seen, one line per method, with the spread over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import InputError
from iblurry.experiment.journal import NewClass, Query, Record, Start, TaskEnd
from iblurry.experiment.metrics import a_auc, a_last, curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Run = Sequence[Record]

# Okabe and Ito's palette, told apart with any colour vision, without its yellow, which is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
LINES = ("-", (0, (6, 2)), (0, (6, 2, 1.5, 2)), (0, (1.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")  # line styles and markers carry it in black and white
MARKERS_PER_LINE = 12
OPEN: dict[str, Any] = {"markersize": 5, "markerfacecolor": "white", "markeredgewidth": 1.1}
METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # publishers refuse Type 3
    "svg.hashsalt": "iblurry",  # else the ids in the file are random
}


def curves(
    groups: Mapping[str, Sequence[Run]], path: Path | str, *, title: str | None = None, arrivals: bool = False
) -> None:
    """Draw the runs of each method to a PNG, SVG or PDF file; `arrivals` marks where classes were met.

    A line is the mean over seeds at the query points they share, its band one sample standard deviation either way.
    Open markers at the ends of tasks: the answers after a boundary, where they are not those of the query before it.
    A method that answers only once, when the stream has ended, is a level line.
    """
    import matplotlib
    from matplotlib.figure import Figure

    path = Path(path)
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in METADATA:
        raise InputError(f"The figure {path.name!r} ends in {path.suffix!r}; end it in .png, .svg or .pdf.")
    if not groups:
        raise InputError("There are no runs to draw; give at least one.")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the same figure whatever the reader's own settings
        matplotlib.rcParams.update(STYLE)
        columns = min(3, max(1, 112 // (26 + max(map(len, groups)))))  # 112 characters fit below the axes
        legend_rows = -(-(len(groups) + arrivals + 1) // columns)
        figure = Figure(figsize=(6.6, 3.5 + 0.18 * legend_rows), layout="constrained")
        axes = figure.add_subplot()
        for number, (method, runs) in enumerate(groups.items()):
            _draw_method(axes, number, method, runs)
        everything = [run for runs in groups.values() for run in runs]
        boundaries = [_draw_task_ends(axes, number, runs) for number, runs in enumerate(groups.values())]
        if any(boundaries):
            axes.plot([], [], "o", color="0.4", label="after the end of a task", **OPEN)
        _draw_tasks(axes, everything)
        if arrivals:
            _draw_arrivals(axes, everything)
        _dress(axes, title)
        # Below, not inside: with many methods no corner is free.
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format=suffix, dpi=200, metadata=METADATA[suffix])


def shared_curve(
    method: str, runs: Sequence[Run]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64] | None]:
    """Where all runs were queried, their mean accuracy there, and its sample standard deviation (None for one run)."""
    measured = [curve(run) for run in runs]
    at = reduce(np.intersect1d, [n for n, _ in measured]) if measured else np.array([], dtype=np.int64)
    if not len(at):
        raise InputError(f"The runs of {method!r} share no query point; let them run on, or query them equally often.")
    table = np.array([accuracy[np.isin(n, at)] for n, accuracy in measured])  # (runs, points)
    return at, table.mean(axis=0), table.std(axis=0, ddof=1) if len(runs) > 1 else None


def _draw_method(axes: Axes, number: int, method: str, runs: Sequence[Run]) -> None:
    colour = COLOURS[number % len(COLOURS)]
    if not any(isinstance(record, Query) for run in runs for record in run) and all(map(a_last, runs)):
        finals = [100 * (a_last(run) or 0.0) for run in runs]
        level = axes.axhline(float(np.mean(finals)), color=colour, linestyle=LINES[number % len(LINES)], linewidth=1.0)
        level.set_label(_label(method, r"A_{\mathrm{last}}", finals))
        return
    at, mean, std = shared_curve(method, runs)
    step = max(1, round(len(at) / MARKERS_PER_LINE))
    axes.plot(
        at,
        100 * mean,
        color=colour,
        linestyle=LINES[number % len(LINES)],
        linewidth=1.3,
        marker=MARKERS[number % len(MARKERS)],
        markersize=4,
        markeredgecolor="white",
        markeredgewidth=0.5,
        clip_on=False,  # the last marker lies on the edge
        markevery=(
            (number * step // 3) % step,
            step,
        ),  # staggered, so that markers of near lines do not cover each other
        label=_label(method, r"A_{\mathrm{AUC}}", [100 * area for run in runs if (area := a_auc(run)) is not None]),
        zorder=3,
    )
    if std is not None:
        axes.fill_between(at, 100 * (mean - std), 100 * (mean + std), color=colour, alpha=0.18, linewidth=0, zorder=2)


def _draw_task_ends(axes: Axes, number: int, runs: Sequence[Run]) -> bool:
    """What a boundary changed, the mean over seeds; whether it changed anything."""
    gains: dict[int, list[tuple[float, float]]] = {}  # by task: samples seen and accuracy
    changed = False
    for run in runs:
        queries = {record.at: record.accuracy for record in run if isinstance(record, Query)}
        for end in (record for record in run if isinstance(record, TaskEnd)):
            gains.setdefault(end.task, []).append((end.at, 100 * end.accuracy))
            changed |= abs(end.accuracy - queries.get(end.at, end.accuracy)) > 0.01
    if changed:
        points = np.array([np.mean(values, axis=0) for values in gains.values()])  # (tasks, 2)
        marker, colour = MARKERS[number % len(MARKERS)], COLOURS[number % len(COLOURS)]
        axes.plot(*points.T, marker, color=colour, clip_on=False, zorder=4, **OPEN)
    return changed


def _label(method: str, symbol: str, values: Sequence[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    name = method.replace("$", r"\$")
    return rf"{name}  (${symbol}$ {np.mean(values):.1f}{spread})"


def _draw_tasks(axes: Axes, runs: Sequence[Run]) -> None:
    """Dashed lines where tasks end and their names above; only where all runs agree, give or take 2 % of the stream."""
    starts = [record for run in runs for record in run if isinstance(record, Start)]
    axes.set_xlim(0, max(start.samples for start in starts))
    if len({len(start.ends) for start in starts}) > 1 or len(starts[0].ends) == 1:
        return
    table = np.array([start.ends for start in starts])  # (runs, tasks): classes of unequal size shift them a little
    if np.ptp(table, axis=0).max() > 0.02 * table.max():
        return
    ends = table.mean(0)
    for end in ends[:-1]:
        axes.axvline(end, color="0.65", linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
    every = -(-len(ends) // 10)  # more than ten names would run into each other
    middles = (np.array([0, *ends[:-1]]) + np.array(ends)) / 2
    names = axes.secondary_xaxis("top")
    names.set_xticks(middles[::every], [f"task {t}" for t in range(1, len(ends) + 1, every)], color="0.4", fontsize=8)
    names.tick_params(length=0, pad=1)
    names.spines["top"].set_visible(False)


def _draw_arrivals(axes: Axes, runs: Sequence[Run]) -> None:
    """A tick on the lower edge wherever a run met a class."""
    at = sorted({record.at for run in runs for record in run if isinstance(record, NewClass)})
    edge = axes.get_xaxis_transform()
    axes.plot(at, [0.012] * len(at), "|", color="0.3", markersize=5, transform=edge, label="first sample of a class")


def _dress(axes: Axes, title: str | None) -> None:
    from matplotlib.ticker import StrMethodFormatter

    axes.set_xlabel("samples seen")
    axes.set_ylabel("accuracy on classes met so far (%)")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0), min(high, 100))
    axes.grid(axis="y", color="0.92", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    if title is not None:
        axes.set_title(title, fontsize=10, parse_math=False)
