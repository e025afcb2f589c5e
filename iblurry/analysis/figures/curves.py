"""Accuracy and learning rate over the stream: one line per method with its spread, one panel per column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.figures.classes import find_evaluations
from iblurry.analysis.figures.metrics import TFLOPS
from iblurry.analysis.figures.style import (
    OPEN,
    MethodStyle,
    add_grid,
    count_seeds,
    describe_spread,
    draw_line,
    format_sample_axis,
    legend_names,
    mark_arrivals,
    mark_tasks,
    marker_looks,
    method_styles,
    open_panels,
)
from iblurry.errors import InputError
from iblurry.experiment.journal import Evaluation, NewClass, Query, Record, Spent, Start, TaskEnd
from iblurry.experiment.metrics import a_auc, a_last

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Journal = Sequence[Record]
Columns = Mapping[str, Mapping[str, Sequence[Journal]]]  # journals by column and method, seed by seed
ONCE = ", asked at the end only"


def draw_curves(
    columns: Columns,
    path: Path | str,
    *,
    title: str | None = None,
    arrivals: bool = False,
    x: Literal["samples", "flops"] = "samples",
) -> None:
    """Draw accuracy over samples seen, or over the FLOPs spent on training until then, to a PNG, SVG or PDF file.

    A line is the mean over seeds at the query points they share, its band one sample standard deviation either way.
    Open markers at the ends of tasks: the answers after a boundary, where they are not those of the query before it.
    A method that is asked only once, when the stream has ended, is a point there, with a faint level line to compare
    with. A single column is drawn larger, with A_AUC in the legend; `arrivals` says whether to mark where classes were
    met.
    """
    counts, single, place = count_seeds(columns), len(columns) == 1, _PLACES[x]
    names, styles = legend_names(counts), method_styles(counts)
    names |= {row: f"{names[row]}{ONCE}" for row in counts if _asked_once(columns, row)}
    note = describe_spread(counts, "line and band: mean ± std")
    if x == "flops":
        note += "\nFLOPs counted at the ends of tasks, between them in proportion to updates"
    about: dict[str, Any] = {"names": names.values(), "more": 1 + arrivals, "letters": 26 if single else 12}
    about |= {"x": "samples seen" if x == "samples" else TFLOPS, "title": title, "note": note, "sharey": True}
    about["y"] = "accuracy on classes met so far (%)" if single else "accuracy (%)"
    with open_panels(path, 2.9 if single else 2.05, [*columns], **about) as panels:
        for axes, groups in zip(panels, columns.values(), strict=True):
            for method, runs in groups.items():
                draw = _draw_once if _asked_once({"": groups}, method) else _draw_accuracy
                draw(axes, styles[method], method, names[method], runs, place, areas=single)
            changes = [_draw_task_ends(axes, styles[method], runs, place) for method, runs in groups.items()]
            if any(changes):
                axes.plot([], [], "o", color="0.4", label="after the end of a task", **OPEN)
            if x == "samples":
                _mark_samples(axes, groups, arrivals=arrivals, narrow=not single)
            else:
                axes.set_xscale("log")
                add_grid(axes)
        low, high = panels[0].get_ylim()  # of all panels, once everything is drawn: the limits stay as they are
        panels[0].set_ylim(max(low, 0), min(high, 100))


def draw_rates(columns: Columns, path: Path | str, *, title: str | None = None) -> None:
    """Draw learning rates over samples seen on a logarithmic axis.

    A line is the geometric mean over seeds where they share a point, its band from their least to their greatest. A
    rate of zero has no place on the axis and leaves a gap.
    """
    counts, single = count_seeds(columns), len(columns) == 1
    names, styles = legend_names(counts), method_styles(counts)
    note = describe_spread(counts, "line: geometric mean, band: least to greatest")
    about: dict[str, Any] = {"names": names.values(), "x": "samples seen", "y": "learning rate", "title": title}
    with open_panels(path, 2.9 if single else 2.0, [*columns], note=note, sharey=True, **about) as panels:
        for axes, groups in zip(panels, columns.values(), strict=True):
            axes.set_yscale("log")
            for method, runs in groups.items():
                rates = shared_rate(method, runs).T
                band = (rates.min(skipna=False), rates.max(skipna=False)) if len(runs) > 1 else (None, None)
                mean = np.exp(np.log(rates).mean(skipna=False))
                draw_line(axes, styles[method], rates.columns, mean, *band, label=names[method], markers=10)
            _mark_samples(axes, groups, arrivals=True, narrow=not single)


def shared_curve(method: str, runs: Sequence[Journal]) -> DataFrame:
    """Look up the accuracy of each run (columns) where all of them were queried (index: samples seen)."""
    queries = [[record for record in run if isinstance(record, Query)] for run in runs]
    return _shared(method, [{query.at: query.accuracy for query in found} for found in queries])


def shared_rate(method: str, runs: Sequence[Journal]) -> DataFrame:
    """Look up the learning rate of each run (columns) where all have one (index); not a number where it is zero."""
    rates = _shared(method, [{record.at: record.rate for record in find_evaluations(run)} for run in runs])
    return rates.where(rates > 0)


def _shared(method: str, runs: Sequence[Mapping[int, float]]) -> DataFrame:
    import pandas as pd

    shared = pd.DataFrame(dict(enumerate(map(pd.Series, runs))), dtype=float).dropna()
    if shared.empty:
        raise InputError(f"The runs of {method!r} have no query in common; continue them, or use one query_every.")
    return shared


def _mark_samples(axes: Axes, groups: Mapping[str, Sequence[Journal]], *, arrivals: bool, narrow: bool) -> None:
    """Ends of tasks, first samples of classes, and the axis of samples."""
    records = [record for runs in groups.values() for run in runs for record in run]
    ends = [record.ends for record in records if isinstance(record, Start)]
    unnamed = narrow and max(map(len, ends)) > 5  # more tasks than a narrow panel has room to name
    mark_tasks(axes, ends, word="" if unnamed else "task ")
    if arrivals:
        mark_arrivals(axes, [record.at for record in records if isinstance(record, NewClass)])
    format_sample_axis(axes, narrow=narrow)
    add_grid(axes)


def _asked_once(columns: Columns, method: str) -> bool:
    """Whether the runs of a method were evaluated at the end of the stream and, but for ends of tasks, nowhere else."""
    runs = [run for groups in columns.values() for run in groups.get(method, ())]
    asked = any(isinstance(record, Query) for run in runs for record in run)
    return bool(runs) and not asked and all(a_last(run) is not None for run in runs)


def training_tflops_at(records: Sequence[Record], at: NDArray[np.int64]) -> NDArray[np.float64]:
    """TFLOPs spent on training when so many samples were seen: everything that is counted but queries.

    A journal counts at the ends of tasks. In between they are taken to grow with the updates that queries record, or
    with the samples where these do not tell (a method that learns in refits).
    """
    counted = [record for record in records if isinstance(record, Spent)]
    if not counted:
        raise InputError("The journals of these runs do not say what was spent; run them again to have it counted.")
    updates = {0: 0} | {record.at: record.updates for record in records if isinstance(record, Evaluation)}
    spent = [0.0, *(sum(one.flops.values()) - one.flops["queries"] for one in counted)]
    seen = [0, *(one.at for one in counted)]
    knots = [updates.get(place, 0) for place in seen]
    if (np.diff(knots) > 0).all() and all(int(place) in updates for place in at):
        return np.interp([updates[int(place)] for place in at], knots, spent) / 1e12
    return np.interp(at, seen, spent) / 1e12


def _positive_tflops(run: Journal, at: NDArray[np.int64]) -> NDArray[np.float64]:
    """Not a number before the first update: zero has no place on a logarithmic axis."""
    found = training_tflops_at(run, at)
    return np.where(found > 0, found, np.nan)


Place = Callable[[Journal, NDArray[np.int64]], NDArray[np.float64]]  # where a run stands on the axis at these samples
_PLACES: dict[str, Place] = {"samples": lambda run, at: at.astype(np.float64), "flops": _positive_tflops}


def _draw_accuracy(
    axes: Axes, style: MethodStyle, method: str, name: str, runs: Sequence[Journal], place: Place, *, areas: bool
) -> None:
    curves = shared_curve(method, runs)
    at, mean, std = curves.index.to_numpy(), curves.mean(axis=1), curves.std(axis=1)
    found = [100 * area for run in runs if (area := a_auc(run)) is not None]
    label = _label(name, r"A_{\mathrm{AUC}}", found) if areas else name
    band = (100 * (mean - std), 100 * (mean + std)) if len(runs) > 1 else (None, None)
    draw_line(axes, style, np.mean([place(run, at) for run in runs], axis=0), 100 * mean, *band, label=label)


def _draw_once(
    axes: Axes, style: MethodStyle, method: str, name: str, runs: Sequence[Journal], place: Place, *, areas: bool
) -> None:
    """A point with its spread where the method was asked, and a level line through it that is no curve."""
    finals = [100 * (a_last(run) or 0.0) for run in runs]
    mean, std = float(np.mean(finals)), float(np.std(finals, ddof=1)) if len(finals) > 1 else None
    at = float(np.mean([place(run, np.array([find_evaluations(run)[-1].at])) for run in runs]))
    axes.axhline(mean, color=style.colour, linestyle=(0, (2, 4)), linewidth=0.8, zorder=2)
    point = axes.errorbar(
        at,
        mean,
        yerr=std,
        color=style.colour,
        linestyle="none",
        capsize=2,
        elinewidth=1.0,
        clip_on=False,
        zorder=5,
        **marker_looks(style, size=6),
    )
    point.set_label(_label(name, r"A_{\mathrm{last}}", finals) if areas else name)


def _draw_task_ends(axes: Axes, style: MethodStyle, runs: Sequence[Journal], place: Place) -> bool:
    """Draw what a task boundary changed, the mean over seeds; whether it changed anything."""
    points = _changed_by_task_ends(runs, place)
    if points:
        axes.plot(*np.array(points).T, style.marker, color=style.colour, clip_on=False, zorder=4, **OPEN)
    return bool(points)


def _changed_by_task_ends(runs: Sequence[Journal], place: Place = _PLACES["samples"]) -> list[NDArray[np.float64]]:
    """Samples seen and accuracy (percent) after each task end, mean over runs; [] where no end changed 1 percent."""
    import pandas as pd

    lines = []
    for run in runs:
        queries = {record.at: record.accuracy for record in run if isinstance(record, Query)}
        for end in (record for record in run if isinstance(record, TaskEnd)):
            changed = abs(end.accuracy - queries.get(end.at, end.accuracy))
            lines.append((end.task, place(run, np.array([end.at]))[0], 100 * end.accuracy, changed))
    ends = pd.DataFrame(lines, columns=["task", "x", "accuracy", "changed"])
    is_shown = (ends["changed"] > 0.01).any()
    return [*ends.groupby("task", sort=False)[["x", "accuracy"]].mean().to_numpy()] if is_shown else []


def _label(name: str, symbol: str, values: Sequence[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return rf"{name}  (${symbol}$ {np.mean(values):.1f}{spread})"
