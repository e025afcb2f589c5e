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
from iblurry.studies.search.points import FINISHED, PRUNED, PointResult, best_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 40  # points that a figure lists one by one
SPREAD = "mean ± std"


def draw_search(results: Sequence[PointResult], path: Path, *, title: str) -> None:
    """Draw the finished points of a grid, each row's best marked: by how many fields they vary."""
    finished = _finished(results)
    draw = {1: _draw_field, 2: _draw_map}.get(len(finished[0].point.changes), _draw_sorted)
    draw(finished, path, title)


def draw_history(results: Sequence[PointResult], path: Path, *, title: str) -> None:
    """Draw trials in their order: finished ones, pruned ones where they stood, and the best mean so far."""
    from matplotlib.ticker import MaxNLocator

    finished = _finished(results)
    row = finished[0].point.row
    style = method_styles([row])[row]
    stopped = [result for result in results if result.state == PRUNED and result.steps]
    pruned = {result.number or 0: result.steps[max(result.steps)] for result in stopped}
    note = describe_spread({row: [len(one.values) for one in finished]}, SPREAD)
    with open_panels(path, 2.84, note=note, x="trial", y=metric_label("a_auc"), title=title) as (axes,):
        numbers, (means, spreads) = [one.number or 0 for one in finished], _numbers(finished)
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
        _mark_best(axes, numbers[int(np.argmax(means))], max(means), style.colour, "best")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        add_grid(axes)


def _draw_field(results: Sequence[PointResult], path: Path, title: str) -> None:
    """A line with a band over a field of numbers, to scale; points over names."""
    ((field, _),) = results[0].point.changes.items()
    values = list(dict.fromkeys(result.point.changes[field] for result in results))
    columns = [f"{field}={value}" for value in values]
    (at, scale), numeric = place_columns(columns), column_numbers(columns) is not None
    rows = _by_row(results)
    styles, names = method_styles(rows), legend_names(_counts(rows))
    note = describe_spread(_counts(rows), "band: mean ± std" if numeric else SPREAD)
    about: dict[str, Any] = {"y": metric_label("a_auc"), "title": title}
    with open_panels(path, 2.8, note=note, names=names.values(), **about) as (axes,):
        for row, own in rows.items():
            style = styles[row]
            places = np.array([at[values.index(one.point.changes[field])] for one in own])
            order = np.argsort(places)
            mean, std = (np.array(numbers)[order] for numbers in _numbers(own))
            band = (None, None) if np.isnan(std).all() else (mean - np.nan_to_num(std), mean + np.nan_to_num(std))
            if numeric:
                draw_line(axes, style, places[order], mean, *band, label=names[row], markers=len(own))
            else:
                looks: dict[str, Any] = {"color": style.colour, "marker": style.marker, "linestyle": "none"}
                axes.errorbar(places[order], mean, yerr=std, capsize=2, label=names[row], **looks)
        for row, one in best_points(results).items():
            place = at[values.index(one.point.changes[field])]
            _mark_best(axes, place, _numbers([one])[0][0], styles[row].colour, _best_label(rows))
        label_columns(axes, columns if numeric else values, at, scale)
        if not numeric:
            axes.set_xlabel(escape_math(field))
        axes.set_xlim(-0.06, 1.06)


def _draw_map(results: Sequence[PointResult], path: Path, title: str) -> None:
    """A map for each row: darker is better, the best is framed."""
    across, down = reversed(list(results[0].point.changes))
    x, y = (list(dict.fromkeys(result.point.changes[field] for result in results)) for field in (across, down))
    rows, best = _by_row(results), best_points(results)
    means = _numbers(results)[0]
    columns = min(2 if len(x) < 6 else 1, len(rows))
    lines = -(-len(rows) // columns)
    with open_figure(path, 1.1 + lines * (0.75 + 0.42 * len(y))) as figure:
        panels = add_panels(figure, len(rows), columns=columns)
        for axes, (row, own) in zip(panels, rows.items(), strict=True):
            table = np.full((len(y), len(x)), np.nan)
            for one in own:
                table[y.index(one.point.changes[down]), x.index(one.point.changes[across])] = _numbers([one])[0][0]
            low, high = min(means), max(means)
            image = axes.imshow(table, cmap="Blues", aspect="auto", vmin=low - 0.15 * (high - low) - 1e-9, vmax=high)
            for one in own:
                _write_cell(axes, one, x.index(one.point.changes[across]), y.index(one.point.changes[down]), image)
            if row in best:
                changes = best[row].point.changes
                _frame_cell(axes, x.index(changes[across]), y.index(changes[down]))
            axes.set_xticks(range(len(x)), x, fontsize=8, parse_math=False)
            axes.set_yticks(range(len(y)), y, fontsize=8, parse_math=False)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_title(display_name(row) if len(rows) > 1 else "", fontsize=9, parse_math=False)
        label_panels(
            figure, panels, columns, x=escape_math(across), y=escape_math(down), title=textwrap.fill(title, 90)
        )
        bar = figure.colorbar(image, ax=panels, shrink=0.85, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label(metric_label("a_auc"), fontsize=8)
        bar.ax.tick_params(labelsize=8)
        figure.supxlabel(f"{describe_spread(_counts(rows), SPREAD)}; framed: {_best_label(rows)}", fontsize=8)


def _draw_sorted(results: Sequence[PointResult], path: Path, title: str) -> None:
    """The best points from the top, a line each: mean, spread and every seed."""
    ranked = sorted(results, key=lambda one: -_numbers([one])[0][0])
    shown, rows = ranked[:MOST], _by_row(results)
    styles = method_styles(rows)
    several = len(rows) > 1
    labels = [f"{display_name(one.point.row)}  {_describe(one)}" if several else _describe(one) for one in shown]
    labels = [textwrap.fill(label, 60, break_long_words=False) for label in labels]
    tall = sum(0.2 + 0.11 * label.count("\n") for label in labels)
    cut = f"; the best {MOST} of {len(results)} points" if len(results) > MOST else ""
    note = describe_spread(_counts(rows), SPREAD) + cut
    with open_panels(path, 0.34 + tall, note=note, x=metric_label("a_auc"), title=title) as (axes,):
        for place, one in enumerate(shown):
            style = styles[one.point.row]
            (mean,), (std,) = _numbers([one])
            axes.plot(
                list(one.values.values()), [place] * len(one.values), "|", color="0.55", markersize=6, label="a seed"
            )
            looks: dict[str, Any] = {"color": style.colour, "marker": style.marker, "markersize": 5}
            name = display_name(one.point.row) if several else "mean"
            axes.errorbar(
                mean, place, xerr=None if np.isnan(std) else std, elinewidth=1.0, label=name, linestyle="none", **looks
            )
        for one in (one for one in best_points(results).values() if one in shown):
            colour = styles[one.point.row].colour
            _mark_best(axes, _numbers([one])[0][0], shown.index(one), colour, _best_label(rows))
        axes.set_yticks(range(len(shown)), labels, fontsize=7, parse_math=False)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        add_grid(axes, "x")


def _finished(results: Sequence[PointResult]) -> list[PointResult]:
    """The points that are finished; InputError where none is."""
    finished = [result for result in results if result.score is not None]
    if not finished:
        raise InputError("No point of the search is finished, so there is nothing to draw.")
    return finished


def _mark_best(axes: Axes, x: float, y: float, colour: str, label: str) -> None:
    """A star."""
    star: dict[str, Any] = {"marker": "*", "markersize": 13, "markeredgecolor": "black", "markeredgewidth": 0.7}
    axes.plot(x, y, color=colour, linestyle="none", zorder=6, label=label, **star)


def _best_label(rows: Mapping[str, object]) -> str:
    return "best" + (" of each method" if len(rows) > 1 else "")


def _describe(result: PointResult) -> str:
    """Writes a point's fields by the last words of their paths, where those tell them apart."""
    short = {path.rsplit(".", 1)[-1]: value for path, value in result.point.changes.items()}
    whole = result.point.changes
    return " ".join(f"{name}={value}" for name, value in (short if len(short) == len(whole) else whole).items())


def _write_cell(axes: Axes, one: PointResult, x: int, y: int, image: Any) -> None:
    assert one.score is not None
    dark = image.norm(one.score.mean) > 0.6
    spread = f"\n± {one.score.std:.1f}" if one.score.std is not None else ""
    colour = "white" if dark else "black"
    axes.text(x, y, f"{one.score.mean:.1f}{spread}", ha="center", va="center", fontsize=7.5, color=colour)


def _frame_cell(axes: Axes, x: int, y: int) -> None:
    from matplotlib.patches import Rectangle

    frame = Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, fill=False, edgecolor=COLOURS[1], linewidth=2.0, zorder=4)
    axes.add_patch(frame)


def _by_row(results: Sequence[PointResult]) -> dict[str, list[PointResult]]:
    rows: dict[str, list[PointResult]] = {}
    for result in results:
        rows.setdefault(result.point.row, []).append(result)
    return rows


def _counts(rows: dict[str, list[PointResult]]) -> dict[str, list[int]]:
    """Counts by row how many seeds each point has."""
    return {row: [len(one.values) for one in own] for row, own in rows.items()}


def _numbers(results: Sequence[PointResult]) -> tuple[list[float], list[float]]:
    """Means, and spreads that are not a number for a single seed."""
    scores = [one.score for one in results if one.score is not None and one.state == FINISHED]
    return [one.mean for one in scores], [float("nan") if one.std is None else one.std for one in scores]
