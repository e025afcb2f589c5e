"""Figures of searches: A_AUC over one field, over two as a map, over more as sorted points, and trial by trial."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from iblurry.analysis.describe import display_name
from iblurry.analysis.figures.metrics import column_numbers, label_columns, metric_label, place_columns
from iblurry.analysis.figures.style import (
    COLOURS,
    add_grid,
    add_panels,
    describe_spread,
    draw_line,
    escape_math,
    label_panels,
    legend_names,
    method_styles,
    open_figure,
    open_panels,
)
from iblurry.errors import InputError
from iblurry.studies.search.points import PRUNED, PointResult, best_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

MOST = 40  # points that a figure lists one by one
SPREAD = "mean ± std"


def draw_search(results: Sequence[PointResult], path: Path, *, title: str) -> None:
    """Draw the finished points of a grid, each row's best marked: by how many fields they vary."""
    points = _tabulate(results)
    draw = {1: _draw_field, 2: _draw_map}.get(len(points["changes"][0]), _draw_sorted)
    draw(points, path, title)


def draw_history(results: Sequence[PointResult], path: Path, *, title: str) -> None:
    """Draw trials in their order: finished ones, pruned ones where they stood, and the best mean so far."""
    from matplotlib.ticker import MaxNLocator

    points = _tabulate(results)
    numbers, means, spreads = (points[name].to_numpy() for name in ("number", "mean", "std"))
    style = method_styles([points["row"][0]])[points["row"][0]]
    stopped = [result for result in results if result.state == PRUNED and result.steps]
    pruned = {result.number or 0: result.steps[max(result.steps)] for result in stopped}
    note = describe_spread(_counts(points), SPREAD)
    with open_panels(path, 2.84, note=note, x="trial", y=metric_label("a_auc"), title=title) as (axes,):
        looks: dict[str, Any] = {"color": style.colour, "marker": style.marker, "markersize": 5, "linestyle": "none"}
        bars = None if np.isnan(spreads).all() else np.nan_to_num(spreads)
        axes.errorbar(numbers, means, yerr=bars, elinewidth=0.8, label="finished", **looks)
        if pruned:
            label = "pruned: A_AUC until then"
            axes.plot(list(pruned), list(pruned.values()), "x", color="0.5", markersize=5, label=label)
        best = np.maximum.accumulate(means)
        last = max(result.number or 0 for result in results)
        steps = ([*numbers, last], [*best, best[-1]])
        axes.step(*steps, where="post", color="0.25", linewidth=1.0, linestyle="--", label="best so far", zorder=1)
        _mark_best(axes, numbers[means.argmax()], means.max(), style.colour, "best")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        add_grid(axes)


def _draw_field(points: DataFrame, path: Path, title: str) -> None:
    """A line with a band over a field of numbers, to scale; points over names."""
    (field,) = points["changes"][0]
    values = points[f"field {field}"].unique().tolist()
    columns = [f"{field}={value}" for value in values]
    (at, scale), numeric = place_columns(columns), column_numbers(columns) is not None
    points["at"] = at[[values.index(value) for value in points[f"field {field}"]]]
    counts = _counts(points)
    styles, names = method_styles(counts), legend_names(counts)
    note = describe_spread(counts, "band: mean ± std" if numeric else SPREAD)
    about: dict[str, Any] = {"y": metric_label("a_auc"), "title": title}
    with open_panels(path, 2.8, note=note, names=names.values(), **about) as (axes,):
        for row, own in points.sort_values("at").groupby("row", sort=False):
            style = styles[row]
            place, mean, std = (own[name].to_numpy() for name in ("at", "mean", "std"))
            band = (None, None) if np.isnan(std).all() else (mean - np.nan_to_num(std), mean + np.nan_to_num(std))
            if numeric:
                draw_line(axes, style, place, mean, *band, label=names[row], markers=len(own))
            else:
                looks: dict[str, Any] = {"color": style.colour, "marker": style.marker, "linestyle": "none"}
                axes.errorbar(place, mean, yerr=std, capsize=2, label=names[row], **looks)
        for one in points[points["best"]].itertuples():
            _mark_best(axes, one.at, one.mean, styles[one.row].colour, _best_label(counts))
        label_columns(axes, columns if numeric else values, at, scale)
        if not numeric:
            axes.set_xlabel(escape_math(field))
        axes.set_xlim(-0.06, 1.06)


def _draw_map(points: DataFrame, path: Path, title: str) -> None:
    """A map for each row: darker is better, the best is framed."""
    down, across = points["changes"][0]
    x, y = (points[f"field {path}"].unique().tolist() for path in (across, down))
    low, high, counts = points["mean"].min(), points["mean"].max(), _counts(points)
    columns = min(2 if len(x) < 6 else 1, len(counts))
    lines = -(-len(counts) // columns)
    with open_figure(path, 1.1 + lines * (0.75 + 0.42 * len(y))) as figure:
        panels = add_panels(figure, len(counts), columns=columns)
        for axes, (row, own) in zip(panels, points.groupby("row", sort=False), strict=True):
            means = own.pivot(index=f"field {down}", columns=f"field {across}", values="mean")
            table = means.reindex(index=y, columns=x)
            looks: dict[str, Any] = {"vmin": low - 0.15 * (high - low) - 1e-9, "vmax": high}
            image = axes.imshow(table.to_numpy(), cmap="Blues", aspect="auto", **looks)
            for one in own.itertuples():
                place = x.index(one.changes[across]), y.index(one.changes[down])
                _write_cell(axes, one, *place, image)
                if one.best:
                    _frame_cell(axes, *place)
            axes.set_xticks(range(len(x)), x, fontsize=8, parse_math=False)
            axes.set_yticks(range(len(y)), y, fontsize=8, parse_math=False)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_title(display_name(row) if len(counts) > 1 else "", fontsize=9, parse_math=False)
        label_panels(
            figure, panels, columns, x=escape_math(across), y=escape_math(down), title=textwrap.fill(title, 90)
        )
        bar = figure.colorbar(image, ax=panels, shrink=0.85, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label(metric_label("a_auc"), fontsize=8)
        bar.ax.tick_params(labelsize=8)
        figure.supxlabel(f"{describe_spread(counts, SPREAD)}; framed: {_best_label(counts)}", fontsize=8)


def _draw_sorted(points: DataFrame, path: Path, title: str) -> None:
    """The best points from the top, a line each: mean, spread and every seed."""
    counts = _counts(points)
    styles, several = method_styles(counts), len(counts) > 1
    shown = [*points.sort_values("mean", ascending=False, kind="stable").head(MOST).itertuples()]
    labels = [f"{display_name(one.row)}  {_describe(one)}" if several else _describe(one) for one in shown]
    labels = [textwrap.fill(label, 60, break_long_words=False) for label in labels]
    tall = sum(0.2 + 0.11 * label.count("\n") for label in labels)
    cut = f"; the best {MOST} of {len(points)} points" if len(points) > MOST else ""
    note = describe_spread(counts, SPREAD) + cut
    with open_panels(path, 0.34 + tall, note=note, x=metric_label("a_auc"), title=title) as (axes,):
        for place, one in enumerate(shown):
            style = styles[one.row]
            axes.plot(one.values, [place] * one.n, "|", color="0.55", markersize=6, label="a seed")
            looks: dict[str, Any] = {"color": style.colour, "marker": style.marker, "markersize": 5}
            looks |= {"label": display_name(one.row) if several else "mean", "linestyle": "none"}
            axes.errorbar(one.mean, place, xerr=None if np.isnan(one.std) else one.std, elinewidth=1.0, **looks)
        for place, one in sorted(enumerate(shown), key=lambda line: line[1].Index):
            if one.best:
                _mark_best(axes, one.mean, place, styles[one.row].colour, _best_label(counts))
        axes.set_yticks(range(len(shown)), labels, fontsize=7, parse_math=False)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        add_grid(axes, "x")


def _tabulate(results: Sequence[PointResult]) -> DataFrame:
    """The finished points, a line for each, with a column for each field; InputError where none is finished."""
    import pandas as pd

    best = set(map(id, best_points(results).values()))
    lines = [
        {
            **{f"field {path}": value for path, value in one.point.changes.items()},
            "row": one.point.row,
            "number": one.number or 0,
            "n": len(one.values),
            "values": list(one.values.values()),
            "mean": one.score.mean,
            "std": one.score.std,  # not a number for a single seed
            "best": id(one) in best,
            "changes": one.point.changes,
        }
        for one in results
        if one.score is not None
    ]
    if not lines:
        raise InputError("No point of the search is finished, so there is nothing to draw.")
    return pd.DataFrame(lines).astype({"std": float})


def _mark_best(axes: Axes, x: float, y: float, colour: str, label: str) -> None:
    """A star."""
    star: dict[str, Any] = {"marker": "*", "markersize": 13, "markeredgecolor": "black", "markeredgewidth": 0.7}
    axes.plot(x, y, color=colour, linestyle="none", zorder=6, label=label, **star)


def _best_label(rows: Mapping[str, object]) -> str:
    return "best" + (" of each method" if len(rows) > 1 else "")


def _describe(point: Any) -> str:
    """Writes a point's fields by the last words of their paths, where those tell them apart."""
    whole = point.changes
    short = {path.rsplit(".", 1)[-1]: value for path, value in whole.items()}
    return " ".join(f"{name}={value}" for name, value in (short if len(short) == len(whole) else whole).items())


def _write_cell(axes: Axes, one: Any, x: int, y: int, image: Any) -> None:
    spread = f"\n± {one.std:.1f}" if one.std == one.std else ""
    colour = "white" if image.norm(one.mean) > 0.6 else "black"
    axes.text(x, y, f"{one.mean:.1f}{spread}", ha="center", va="center", fontsize=7.5, color=colour)


def _frame_cell(axes: Axes, x: int, y: int) -> None:
    from matplotlib.patches import Rectangle

    frame = Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, fill=False, edgecolor=COLOURS[1], linewidth=2.0, zorder=4)
    axes.add_patch(frame)


def _counts(points: DataFrame) -> dict[str, list[int]]:
    """Counts by row how many seeds each point has."""
    counts: dict[str, list[int]] = points.groupby("row", sort=False)["n"].agg(list).to_dict()
    return counts
