"""Accuracy to samples seen, one pair of axes per column of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from iblurry.errors import InputError
from iblurry.experiment.journal import Start
from iblurry.studies import run_figure as single
from iblurry.studies.figures.cells import rows_of
from iblurry.studies.run_figure import Run, draw_curves, keep_percent
from iblurry.studies.run_marks import sample_axis
from iblurry.studies.run_style import legend_below, outer, panels, sheet, side_by_side

ACROSS = 2  # panels beside each other: wide enough for the names of five tasks


def curves(
    columns: Mapping[str, Mapping[str, Sequence[Run]]],
    path: Path | str,
    *,
    title: str | None = None,
    arrivals: bool = False,
) -> None:
    """Draw runs, by column and method; a single column is drawn as `iblurry show` does, with A_AUC in the legend."""
    methods = rows_of(columns)
    if not methods:
        raise InputError("There are no runs to draw; give at least one.")
    if len(columns) == 1:
        single.curves(next(iter(columns.values())), path, title=title, arrivals=arrivals)
        return
    below = side_by_side(12 + max(map(len, methods)))
    height = 2.1 * -(-len(columns) // ACROSS) + 0.5 + 0.18 * -(-(len(methods) + arrivals + 1) // below)
    with sheet(path, height) as figure:
        places = panels(figure, len(columns), columns=ACROSS, sharey=True)
        for axes, (column, groups) in zip(places, columns.items(), strict=True):
            # A method looks the same on all panels, also where another is missing.
            numbered = {methods.index(method): (method, runs) for method, runs in groups.items()}
            draw_curves(axes, numbered, arrivals=arrivals, areas=False, word="" if _many(groups) else "task ")
            axes.set_title(column, fontsize=9, parse_math=False)
            sample_axis(axes, narrow=True)
        keep_percent(places[0])  # they share the axis
        left, lowest = outer(places, ACROSS)
        for axes in left:
            axes.set_ylabel("accuracy (%)")
        for axes in lowest:
            axes.set_xlabel("samples seen")
        if title is not None:
            figure.suptitle(title, fontsize=10, parse_math=False)
        legend_below(figure, below)


def _many(groups: Mapping[str, Sequence[Run]]) -> bool:
    """More tasks than a narrow panel has room to name."""
    starts = [record for runs in groups.values() for run in runs for record in run if isinstance(record, Start)]
    return max(len(start.ends) for start in starts) > 5
