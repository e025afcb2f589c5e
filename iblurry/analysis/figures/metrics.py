"""One metric per method: over what a study varies, or as bars with every seed on them; the paper's beside ours."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.figures.style import (
    OPEN,
    add_grid,
    add_legend_below,
    add_panels,
    all_rows,
    describe_spread,
    escape_math,
    label_panels,
    legend_columns,
    legend_names,
    marker_looks,
    open_figure,
)
from iblurry.analysis.method_style import MethodStyle, method_styles
from iblurry.analysis.verdict import PaperNumber
from iblurry.errors import UnknownNameError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = Mapping[str, Mapping[str, Sequence[float]]]  # by column and row, a number in percent per seed
PaperNumbers = Mapping[str, Mapping[str, PaperNumber]]  # by column and row
LABELS = {  # of an axis, by the metric's name
    "a_auc": r"$A_{\mathrm{AUC}}$ (%)",
    "a_avg": r"$A_{\mathrm{avg}}$ (%)",
    "a_last": r"$A_{\mathrm{last}}$ (%)",
    "f_last": r"$F_{\mathrm{last}}$ (%), less is better",
    "aaa": "AAA (%)",
    "min_acc": "min-ACC at the end (%)",
    "wc_acc": "WC-ACC at the end (%)",
    "forgetting": "forgetting at the end (%), less is better",
}
LESS_IS_BETTER = ("f_last", "forgetting")
VARIED = {  # a column is called name=value
    "N": "disjoint classes N (%)",
    "M": "blur level M (%)",
    "K": "memory K (samples)",
    "T": "number of tasks T",
}
LEAST = 0.1  # of the axis, between neighbours that are to be told apart
LETTERS = 64  # that fit below the axis
ACROSS = 2  # panels of bars beside each other
INK = "0.15"
_EMPTY = {"markerfacecolor": "white", "fillstyle": "full"}  # the paper's


def draw_sweep(
    numbers: Numbers, path: Path, *, metric: str = "a_auc", paper: PaperNumbers | None = None, title: str | None = None
) -> None:
    """Draw the means over seeds by column; bars are one sample standard deviation either way.

    Hollow markers, each to the right of ours, are the paper's. Numbers stand to scale: linear, else logarithmic, and
    evenly only where neither keeps them apart; names stand evenly. Methods are set a little apart from each other.
    """
    name, counts = metric_label(metric), _count_seeds(numbers, metric)
    columns, methods, styles, names = list(numbers), list(counts), method_styles(counts), legend_names(counts)
    at, scale = place_columns(columns)
    below = legend_columns(12 + max(map(len, names.values())))
    theirs = {column: {row: n for row, n in rows.items() if row in methods} for column, rows in (paper or {}).items()}
    with open_figure(path, 3.58 + 0.18 * -(-(len(methods) + any(theirs.values())) // below)) as figure:
        axes = figure.add_subplot()
        step = min(0.022, 0.3 / len(methods) * _nearest(at))  # two places per method: ours and the paper's
        for number, method in enumerate(methods):
            left = at + (2 * number - len(methods) + 0.5) * step
            ours = [_mean_std(numbers[column].get(method, [float("nan")])) for column in columns]
            _draw_points(axes, styles[method], left, ours, label=names[method], linestyle=styles[method].line)
            published = [_pair(theirs.get(column, {}).get(method)) for column in columns]
            if not np.isnan(published).all():
                _draw_points(axes, styles[method], left + step, published, linestyle="none", **_EMPTY)
        if any(theirs.values()):
            axes.errorbar([], [], fmt="o", color="0.4", markerfacecolor="white", markersize=4.5, label="the paper's")
        label_columns(axes, columns, at, scale)
        axes.set_xlim(-0.04 - step * len(methods), 1.04 + step * len(methods))
        axes.set_ylabel(name)
        if title is not None:
            axes.set_title(title, fontsize=10, parse_math=False)
        add_legend_below(figure, below, describe_spread(counts, "mean ± std"))


def place_columns(columns: Sequence[str]) -> tuple[NDArray[np.float64], str]:
    """Where columns stand between 0 and 1, and the scale in words.

    >>> place_columns(["K=100", "K=1000", "K=10000"])[1]
    'log scale'
    """
    even = np.linspace(0, 1, len(columns)) if len(columns) > 1 else np.array([0.5])
    values = column_numbers(columns)
    if values is None or len(columns) == 1:
        return even, ""
    scales: dict[str, Any] = {"": values} | ({"log scale": np.log(values)} if (values > 0).all() else {})
    for scale, numbers in scales.items():
        at = (numbers - numbers.min()) / max(np.ptp(numbers), 1e-9)
        if _nearest(at) >= min(LEAST, 0.5 / len(columns)):
            return at, scale
    return even, "evenly spaced"


def _draw_points(
    axes: Axes, style: MethodStyle, at: NDArray[np.float64], points: Sequence[tuple[float, float]], **changes: Any
) -> None:
    mean, std = np.array(points).T
    order = np.argsort(at)
    usual: dict[str, Any] = {"color": style.colour, "linewidth": 1.1} | marker_looks(style, size=4.5)
    bars: dict[str, Any] = {"elinewidth": 0.9, "capsize": 1.6, "markeredgewidth": 0.9, "zorder": 3}
    axes.errorbar(at[order], mean[order], yerr=std[order], **usual | bars | changes)


def label_columns(axes: Axes, columns: Sequence[str], at: NDArray[np.float64], scale: str) -> None:
    numeric = column_numbers(columns) is not None
    room = max(6, int(LETTERS * min(_nearest(at), 1)))
    names = [f"{float(column.partition('=')[2]):,g}" if numeric else column for column in columns]
    long = max(map(len, " ".join(names).split() or [""])) > room
    labels = names if long else [textwrap.fill(text, room, break_long_words=False) for text in names]
    turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axes.set_xticks(at, labels, parse_math=False, fontsize=8 if not numeric else 9, **turned)
    if numeric:
        what = columns[0].partition("=")[0]
        axes.set_xlabel(f"{VARIED.get(what, escape_math(what))}{f', {scale}' if scale else ''}")
    add_grid(axes)


def column_numbers(columns: Sequence[str]) -> NDArray[np.float64] | None:
    """The numbers of columns that vary one thing; None where they are names."""
    what = {column.partition("=")[0] for column in columns}
    try:
        numbers = [float(column.partition("=")[2]) for column in columns]
    except ValueError:
        return None
    return np.array(numbers) if len(what) == 1 and len(set(numbers)) == len(numbers) else None


def _nearest(at: NDArray[np.float64]) -> float:
    return float(np.diff(np.sort(at)).min()) if len(at) > 1 else 1.0


def _pair(number: PaperNumber | None) -> tuple[float, float]:
    if number is None:
        return float("nan"), float("nan")
    return number.mean, float("nan") if number.std is None else number.std


def draw_bars(
    numbers: Numbers, path: Path, *, metric: str = "a_auc", paper: PaperNumbers | None = None, title: str | None = None
) -> None:
    """Draw the mean over seeds of each method, from zero; its value stands at the right.

    Whiskers are one sample standard deviation either way, a dot is a seed, an open triangle points at the paper's mean.
    """
    name, counts = metric_label(metric), _count_seeds(numbers, metric)
    styles, wide = method_styles(counts), 34 if len(numbers) == 1 else 22
    labels = [textwrap.fill(text, wide) for text in legend_names(counts).values()]
    tall = 0.2 + len(labels) * (0.16 + 0.13 * (1 + max(label.count("\n") for label in labels)))
    with open_figure(path, 1.08 + (0.45 + tall) * -(-len(numbers) // ACROSS)) as figure:
        panels = add_panels(figure, len(numbers), columns=ACROSS, sharex=True, sharey=True)
        for axes, (column, values) in zip(panels, numbers.items(), strict=True):
            _draw_bars(axes, styles, values, (paper or {}).get(column, {}))
            axes.set_title(column, fontsize=9, parse_math=False)
        panels[0].set_yticks(range(len(labels)), labels)
        panels[0].set_ylim(len(labels) - 0.4, -0.6)
        label_panels(figure, panels, min(ACROSS, len(numbers)), x=name, y=None, title=title)
        add_legend_below(figure, 4, describe_spread(counts, "bar and whisker: mean ± std"))


def _draw_bars(
    axes: Axes,
    styles: Mapping[str, MethodStyle],
    values: Mapping[str, Sequence[float]],
    paper: Mapping[str, PaperNumber],
) -> None:
    methods: list[str] = list(styles)
    written_at, texts = [], []
    for method, seeds in values.items():
        number, style, (mean, std) = methods.index(method), styles[method], _mean_std(seeds)
        axes.barh(
            number, mean, 0.68, facecolor=_lighten(style.colour), edgecolor=style.colour, hatch=style.hatch, zorder=2
        )
        level = number + (np.linspace(-0.2, 0.2, len(seeds)) if len(seeds) > 1 else np.zeros(1))
        axes.plot(seeds, level, "o", color=INK, markersize=3.4, markeredgecolor="white", zorder=4, label="a seed")
        if std == std:
            axes.errorbar(mean, number, xerr=std, color=INK, elinewidth=1.1, capsize=2.5, zorder=3)
        written_at.append(number)
        texts.append(f"{mean:z.1f}" + (f" ± {std:.1f}" if std == std else ""))
    known = {methods.index(method): number.mean for method, number in paper.items() if method in values}
    if known:
        above = [at - 0.36 for at in known]  # on the edge of the bar, where it hides no seed
        axes.plot(list(known.values()), above, "v", color="black", label="the paper's mean", zorder=5, **OPEN)
    right = axes.secondary_yaxis("right")
    right.set_yticks(written_at, texts, fontsize=8)
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.axvline(0, color="black", linewidth=0.8, zorder=6)
    add_grid(axes, "x")


def _count_seeds(numbers: Numbers, metric: str) -> dict[str, list[int]]:
    """Counts by row how many seeds each column has."""
    rows = all_rows(numbers, f"numbers for {metric}")
    return {row: [len(values[row]) for values in numbers.values() if row in values] for row in rows}


def _lighten(colour: str) -> tuple[float, float, float]:
    """Light enough for dots and hatches to show."""
    from matplotlib.colors import to_rgb

    red, green, blue = (0.35 * part + 0.65 for part in to_rgb(colour))
    return red, green, blue


def metric_label(metric: str) -> str:
    """A metric as an axis names it."""
    if metric not in LABELS:
        raise UnknownNameError("metric", metric, LABELS)
    return LABELS[metric]


def _mean_std(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds and its sample standard deviation (by n - 1); not a number for a single seed."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
