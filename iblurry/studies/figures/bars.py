"""A metric per method as bars with every seed on them, one pair of axes per column of a study."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from iblurry.errors import InputError
from iblurry.studies.figures.cells import Cells, Papers, mean_and_spread, rows_of, written
from iblurry.studies.paper import Number
from iblurry.studies.run_style import OPEN, legend_below, look, outer, panels, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACROSS = 2
INK = "0.15"


def bars(
    cells: Cells, path: Path | str, *, metric: str = "a_auc", paper: Papers | None = None, title: str | None = None
) -> None:
    """Draw the mean over seeds of each method, from zero; its value stands at the right.

    Whiskers are one sample standard deviation either way, a dot is a seed, an open triangle points at the paper's mean.
    """
    name, methods = written(metric), rows_of(cells)
    if not methods:
        raise InputError(f"No run has a number for {metric}; let some come to their end first.")
    labels = [textwrap.fill(method, 34 if len(cells) == 1 else 22) for method in methods]
    tall = 0.2 + len(labels) * (0.16 + 0.13 * (1 + max(label.count("\n") for label in labels)))
    with sheet(path, 0.9 + (0.45 + tall) * -(-len(cells) // ACROSS)) as figure:
        places = panels(figure, len(cells), columns=ACROSS, sharex=True, sharey=True)
        for axes, (column, values) in zip(places, cells.items(), strict=True):
            _draw(axes, methods, values, (paper or {}).get(column, {}))
            axes.set_title(column, fontsize=9, parse_math=False)
        places[0].set_yticks(range(len(methods)), labels, parse_math=False)
        places[0].set_ylim(len(methods) - 0.4, -0.6)
        for axes in outer(places, min(ACROSS, len(cells)))[1]:
            axes.set_xlabel(name)
        if title is not None:
            figure.suptitle(title, fontsize=10, parse_math=False)
        legend_below(figure, 4)


def _draw(
    axes: Axes, methods: Sequence[str], values: Mapping[str, Sequence[float]], paper: Mapping[str, Number]
) -> None:
    written_at, texts = [], []
    for method, seeds in values.items():
        number = methods.index(method)
        mine, (mean, spread) = look(number), mean_and_spread(seeds)
        axes.barh(number, mean, 0.68, facecolor=_pale(mine.colour), edgecolor=mine.colour, hatch=mine.hatch, zorder=2)
        level = number + (np.linspace(-0.2, 0.2, len(seeds)) if len(seeds) > 1 else np.zeros(1))
        axes.plot(seeds, level, "o", color=INK, markersize=3.4, markeredgecolor="white", zorder=4, label="a seed")
        if spread == spread:
            whisker = axes.errorbar(mean, number, xerr=spread, color=INK, elinewidth=1.1, capsize=2.5, zorder=3)
            whisker.set_label("mean ± std")
        written_at.append(number)
        texts.append(f"{mean:z.1f}" + (f" ± {spread:.1f}" if spread == spread else ""))
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
    axes.grid(axis="x", color="0.92", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def _pale(colour: str) -> tuple[float, float, float]:
    """Light enough for dots and hatches to show."""
    from matplotlib.colors import to_rgb

    red, green, blue = (0.35 * part + 0.65 for part in to_rgb(colour))
    return red, green, blue
