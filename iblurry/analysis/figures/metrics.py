"""One metric per method: over what a study varies, as bars with every seed on them, or against training FLOPs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.analysis.figures.style import (
    OPEN,
    MethodStyle,
    add_grid,
    count_seeds,
    describe_spread,
    escape_math,
    legend_names,
    marker_looks,
    method_styles,
    open_panels,
)
from iblurry.analysis.table import PaperNumber
from iblurry.errors import UnknownNameError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = Mapping[str, Mapping[str, Sequence[float]]]  # by column and row, a number in percent per seed
PaperNumbers = Mapping[str, Mapping[str, PaperNumber]]  # by column and row
Points = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]  # by column and row: TFLOPs and percent per seed
TFLOPS = "training TFLOPs, log scale"
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
INK = "0.15"
_EMPTY = {"markerfacecolor": "white", "fillstyle": "full"}  # the paper's


def draw_sweep(
    numbers: Numbers, path: Path, *, metric: str = "a_auc", paper: PaperNumbers | None = None, title: str | None = None
) -> None:
    """Draw the means over seeds by column; bars are one sample standard deviation either way.

    Hollow markers, each to the right of ours, are the paper's. Numbers stand to scale: linear, else logarithmic, and
    evenly only where neither keeps them apart; names stand evenly. Methods are set a little apart from each other.
    """
    counts = count_seeds(numbers, f"numbers for {metric}")
    columns, methods, styles, names = list(numbers), list(counts), method_styles(counts), legend_names(counts)
    at, scale = place_columns(columns)
    theirs = {column: {row: n for row, n in rows.items() if row in methods} for column, rows in (paper or {}).items()}
    note, more = describe_spread(counts, "mean ± std"), int(any(theirs.values()))
    with open_panels(path, 2.8, note=note, names=names.values(), more=more, title=title) as (axes,):
        step = min(0.022, 0.3 / len(methods) * _nearest(at))  # two places per method: ours and the paper's
        for number, method in enumerate(methods):
            left = at + (2 * number - len(methods) + 0.5) * step
            ours = [_mean_std(numbers[column].get(method, [float("nan")])) for column in columns]
            _draw_points(axes, styles[method], left, ours, label=names[method], linestyle=styles[method].line)
            published = [_pair(theirs.get(column, {}).get(method)) for column in columns]
            if not np.isnan(published).all():
                _draw_points(axes, styles[method], left + step, published, linestyle="none", **_EMPTY)
        if more:
            axes.errorbar([], [], fmt="o", color="0.4", markerfacecolor="white", markersize=4.5, label="the paper's")
        label_columns(axes, columns, at, scale)
        axes.set_xlim(-0.04 - step * len(methods), 1.04 + step * len(methods))
        axes.set_ylabel(metric_label(metric))


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
    counts, note = count_seeds(numbers, f"numbers for {metric}"), "bar and whisker: mean ± std"
    styles, wide = method_styles(counts), 34 if len(numbers) == 1 else 22
    labels = [textwrap.fill(text, wide) for text in legend_names(counts).values()]
    tall = 0.2 + len(labels) * (0.16 + 0.13 * (1 + max(label.count("\n") for label in labels)))
    about: dict[str, Any] = {"note": describe_spread(counts, note), "x": metric_label(metric), "title": title}
    with open_panels(path, 0.5 + tall, [*numbers], sharex=True, sharey=True, **about) as panels:
        for axes, (column, values) in zip(panels, numbers.items(), strict=True):
            _draw_bars(axes, styles, values, (paper or {}).get(column, {}))
        panels[0].set_yticks(range(len(labels)), labels)
        panels[0].set_ylim(len(labels) - 0.4, -0.6)


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


def draw_flops(points: Points, path: Path, *, metric: str = "a_auc", title: str | None = None) -> None:
    """Draw each method's mean over seeds, a metric against training FLOPs; bars are one standard deviation either way.

    The grey line joins those that no other one beats with fewer FLOPs.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    counts = count_seeds(points, f"numbers for {metric} and FLOPs")
    names, styles = legend_names(counts), method_styles(counts)
    about: dict[str, Any] = {"note": describe_spread(counts, "mean ± std"), "names": names.values(), "title": title}
    about |= {"x": TFLOPS, "y": metric_label(metric), "sharex": True, "sharey": True}
    with open_panels(path, 3.3 if len(points) == 1 else 2.4, [*points], **about) as panels:
        for axes, groups in zip(panels, points.values(), strict=True):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
            means = {row: np.mean(seeds, axis=0) for row, seeds in groups.items()}
            for row, seeds in groups.items():
                spread = np.std(seeds, axis=0, ddof=1) if len(seeds) > 1 else (None, None)
                looks: dict[str, Any] = {"color": styles[row].colour, "linestyle": "none", "label": names[row]}
                bars = {"xerr": spread[0], "yerr": spread[1], "elinewidth": 0.9, "capsize": 1.6, "zorder": 3}
                axes.errorbar(*means[row], **looks | bars | marker_looks(styles[row], size=7))
            _draw_front(axes, list(means.values()), sign=-1 if metric in LESS_IS_BETTER else 1)
            add_grid(axes)


def undominated(points: Sequence[Any], sign: int = 1) -> list[int]:
    """Positions of the points that no other one beats with as many FLOPs (1 % more at most), by FLOPs.

    >>> undominated([(1, 50), (4, 40), (2, 60), (2.001, 65)])
    [0, 3]
    >>> undominated([(1, 50), (4, 40), (2, 60), (2.001, 65)], sign=-1)  # less is better
    [0, 1]
    """
    ranked = [(sign * value, -flops) for flops, value in points]
    best = [max(rank for rank in ranked if -rank[1] <= 1.01 * flops) for flops, _ in points]
    return sorted((i for i in range(len(points)) if ranked[i] == best[i]), key=lambda i: -ranked[i][1])


def _draw_front(axes: Axes, means: Sequence[Any], *, sign: int) -> None:
    front = [means[place] for place in undominated(means, sign)]
    if len(front) > 1:
        axes.plot(*np.transpose(front), color="0.75", linewidth=1.0, zorder=1, label="best for its FLOPs")
