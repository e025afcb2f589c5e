"""Grids: every combination of some values of some fields, for every method and seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from iblurry.errors import IblurryError, InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.result import Result
from iblurry.studies.search.point import (
    FAILED,
    FINISHED,
    PointResult,
    SearchPoint,
    a_auc_by_seed,
    apply_changes,
    check_paths,
    check_selectable,
    split_assignment,
    split_values,
)

MOST = 10_000  # runs of a grid
Axes = Mapping[str, tuple[str, ...]]  # values by path, as --set writes them


def parse_grid(texts: Sequence[str], taken: Iterable[str] = ()) -> Axes:
    """What --grid says; `taken` are paths that other options set.

    >>> parse_grid(["memory=200,500", "admission=Balanced,Reservoir"])
    {'memory': ('200', '500'), 'admission': ('Balanced', 'Reservoir')}
    """
    pairs = [split_assignment(text, "--grid") for text in texts]
    check_paths([path for path, _ in pairs], taken, "--grid")
    axes = {path: split_values(values, f"--grid {path}") for path, values in pairs}
    for path, values in axes.items():
        if len(values) == 1:
            raise InputError(
                f"--grid {path}={values[0]} has only one value; give several values, or write --set {path}={values[0]}."
            )
    return axes


def expand_grid(base: Mapping[tuple[str, int], Experiment], axes: Axes) -> list[SearchPoint]:
    """All points, row by row, the last field fastest; InputError if two points of a row are the same experiment.

    Parameters
    ----------
    base : mapping
        Experiments by row and seed, before anything is varied.
    axes : mapping
        Values by path.
    """
    check_selectable(base.values())
    if (count := len(base) * math.prod(map(len, axes.values()))) > MOST:
        raise InputError(f"This grid has {count:,} runs, and more than {MOST:,} are a slip; leave out values.")
    points = []
    for row in dict.fromkeys(row for row, _ in base):
        seeds = [experiment for (name, _), experiment in base.items() if name == row]
        for values in product(*axes.values()):
            changes = dict(zip(axes, values, strict=True))
            points.append(SearchPoint(row, changes, tuple(apply_changes(experiment, changes) for experiment in seeds)))
    first: dict[str, SearchPoint] = {}
    for point in points:
        twin = first.setdefault(point.experiments[0].digest, point)
        if twin is not point:
            raise InputError(
                f"The points {twin.row} {twin} and {point.row} {point} are the same experiment; give each value once, "
                "and fields only where they change something."
            )
    return points


def grid_results(
    points: Sequence[SearchPoint], results: Sequence[Result], failures: Mapping[str, IblurryError]
) -> list[PointResult]:
    """What came of the points; `results` are those of all their experiments, in order."""
    found, runs = [], iter(results)
    for point in points:
        own = [next(runs) for _ in point.experiments]
        notes = [str(failures[one.name]) for one in point.experiments if one.name in failures]
        found.append(PointResult(point, a_auc_by_seed(own), FAILED if notes else FINISHED, " ".join(notes[:1])))
    return found
