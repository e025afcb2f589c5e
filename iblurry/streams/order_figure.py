"""Draws an order: how many samples of each class come in each task, after Figure 1 of the i-Blurry paper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.dataset import Dataset
from iblurry.errors import InputError
from iblurry.streams.order import Order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

# Two hues that every kind of colour vision tells apart (after Okabe and Ito), from light for few to dark for many.
RAMPS = {"disjoint": ("#fdf0e4", "#eb9148", "#9c4400"), "blurry": ("#e4f0f8", "#56a0d3", "#004a78")}
INK, NONE = "#262626", "#f4f4f4"  # text and frames; tiles without a sample
READABLE = 40  # rows: more class names than that are too small to read
WINDOWS = 60  # tiles from left to right where there are no tasks
STAMPS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}  # left out, so equal orders give equal files


def draw(order: Order, dataset: Dataset, *, in_tasks: bool = True) -> Figure:
    """Classes from top to bottom in label order, the stream from left to right, each tile shaded by its count.

    Disjoint classes are orange and above, blurry ones blue and below, framed in the task with most of them. Without
    `in_tasks` the tiles are windows of equal length, which show when each class comes.
    """
    from matplotlib import rc_context
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    order = order if in_tasks else order.in_windows(WINDOWS)
    counts = order.counts(dataset.train.labels)  # (classes, tasks)
    norm = PowerNorm(
        0.5, vmin=0, vmax=int((counts.sum(axis=1) if in_tasks else counts).max())
    )  # a root: the few of a class still show
    tops = _tops(order)
    height = min(max(0.22 * tops[-1], 1.6), 5.6)
    ramps = {role: _ramp(role) for role in RAMPS if role in order.roles}
    with rc_context(
        {"font.size": 8, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK}
    ):
        figure = Figure(figsize=(6.5, height + 1.35), layout="constrained")
        upper, lower = figure.subplots(2, height_ratios=[height, 0.1 * len(ramps)])
        for role, ramp in ramps.items():
            rows = np.flatnonzero(np.array(order.roles) == role)
            _tiles(upper, order, counts[rows], tops[rows], ramp, norm, in_tasks=in_tasks)
            if not in_tasks:
                continue
            place: dict[str, Any] = {"transform": upper.get_yaxis_transform(), "va": "center", "rotation": 270}
            upper.text(1.012, tops[rows].mean() + 0.5, f"{len(rows)} {role}", color=ramp(0.9), weight="bold", **place)
            if role == "blurry":
                _frame_majors(upper, order, counts[rows], tops[rows])
        _label(upper, order, dataset, tops, in_tasks=in_tasks)
        unit = "a task" if in_tasks else f"{len(order.tasks[0]):,} samples"
        _scale(lower, list(ramps.values()), norm, f"samples of a class in {unit}")
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Write the figure as PNG, SVG or PDF, by the ending of the name."""
    from matplotlib import rc_context

    path = Path(path)
    ending = path.suffix.lower()
    if ending not in STAMPS:
        raise InputError(f"The figure {path} ends in {ending!r}; end it in .png, .svg or .pdf.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "iblurry"}):
        figure.savefig(path, dpi=250, metadata={STAMPS[ending]: None})


def _tiles(
    axes: Axes,
    order: Order,
    counts: NDArray[np.int64],
    tops: NDArray[np.float64],
    ramp: Colormap,
    norm: Normalize,
    *,
    in_tasks: bool,
) -> None:
    """One tile per class and task, with its count where there is room for it."""
    few = in_tasks and len(order.classes) <= READABLE
    lines: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.8} if few else {"edgecolor": "face", "linewidth": 0.1}
    edges = np.append(tops, tops[-1] + 1)
    for (left, right), column in zip(_spans(order, apart=in_tasks), counts.T, strict=True):
        shades = np.ma.masked_equal(column[:, None], 0)
        axes.pcolormesh([left, right], edges, shades, cmap=ramp, norm=norm, **lines)
        if few and right - left > 0.07 * len(order):
            for top, held in zip(tops, column.tolist(), strict=True):
                ink = "white" if norm(held) > 0.6 else INK
                text = f"{held:,}" if held else ""
                axes.text((left + right) / 2, top + 0.52, text, color=ink, size=7, ha="center", va="center")


def _frame_majors(axes: Axes, order: Order, counts: NDArray[np.int64], tops: NDArray[np.float64]) -> None:
    """A frame around neighbouring classes that have most of their samples in the same task."""
    from matplotlib.patches import Rectangle

    spans = _spans(order)
    for task, block in groupby(range(len(counts)), key=lambda row: int(counts[row].argmax())):
        rows = tops[list(block)]
        corner, size = (spans[task][0], rows[0]), (spans[task][1] - spans[task][0], rows[-1] + 1 - rows[0])
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=INK, linewidth=1, zorder=3, clip_on=False))


def _label(axes: Axes, order: Order, dataset: Dataset, tops: NDArray[np.float64], *, in_tasks: bool) -> None:
    """Names of the classes at the left, tasks above, time below."""
    if len(tops) <= READABLE:
        axes.set_yticks(tops + 0.5, [dataset.classes[c] for c in order.classes], parse_math=False)
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(tops)} classes, in label order")
    axes.set(xlim=(0, len(order)), ylim=(tops[-1] + 1, 0), xlabel="samples met")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(axis="y", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if not in_tasks:
        axes.set_title("no task boundaries", size=8)
        return
    times, middles = [0, *order.ends], [sum(span) / 2 for span in _spans(order)]
    axes.set_xticks([times[i] for i in _spaced(times, 0.09 * len(order))])
    above = axes.secondary_xaxis("top")
    written = _spaced(middles, 0.03 * len(order))
    above.set_xticks([middles[t] for t in written], [str(t + 1) for t in written])
    above.set_xlabel("task")
    above.tick_params(length=0)
    for spine in above.spines.values():
        spine.set_visible(False)


def _scale(axes: Axes, ramps: list[Colormap], norm: Normalize, label: str) -> None:
    """What the shades mean, one strip per kind of class."""
    top = int(norm.vmax or 1)
    steps = np.linspace(0, 1, 257) ** 2 * top  # even in shade
    for row, ramp in enumerate(reversed(ramps)):
        axes.pcolormesh(steps, [row, row + 0.9], (steps[None, 1:] + steps[None, :-1]) / 2, cmap=ramp, norm=norm)
    axes.set_xscale("function", functions=(np.sqrt, np.square))
    axes.set(xlim=(0, top), yticks=[], xlabel=label, anchor="C")
    axes.set_box_aspect(0.02 * len(ramps))
    axes.set_xticks(sorted({0, top // 50, top // 10, top // 4, top // 2, top}))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _spans(order: Order, *, apart: bool = True) -> list[tuple[float, float]]:
    """Returns from where to where each task is drawn: its samples, less a little so that tasks stand apart."""
    spans = []
    for start, end in zip([0, *order.ends[:-1]], order.ends, strict=True):
        edge = min(0.002 * len(order), (end - start) / 8) * apart
        spans.append((start + edge, end - edge))
    return spans


def _spaced(places: Sequence[float], least: float) -> list[int]:
    """Which of the places to write at, from the first on, so that no two are nearer than `least`."""
    chosen = [0]
    for i, place in enumerate(places):
        if place - places[chosen[-1]] >= least:
            chosen.append(i)
    return chosen


def _tops(order: Order) -> NDArray[np.float64]:
    """Where each class's row starts; a gap parts the disjoint classes from the blurry ones."""
    labels = np.arange(len(order.classes))
    gap = max(0.6, 0.015 * len(labels)) if 0 < order.disjoint < len(labels) else 0.0
    return labels + gap * (labels >= order.disjoint)


def _ramp(role: str) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(role, RAMPS[role]).with_extremes(bad=NONE)
