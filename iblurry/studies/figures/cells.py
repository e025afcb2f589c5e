"""What figures are drawn from: a study's runs by column and row, their numbers, and the paper's for the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from iblurry.errors import UnknownNameError
from iblurry.experiment.result import Result
from iblurry.studies.compare import FIELDS, configuration, counterpart
from iblurry.studies.paper import Number, paper_number
from iblurry.studies.study import Planned

Runs = Mapping[str, Mapping[str, Sequence[Result]]]  # by column and row, seed by seed
Cells = Mapping[str, Mapping[str, Sequence[float]]]  # by column and row, a number in percent per seed
Papers = Mapping[str, Mapping[str, Number]]  # by column and row
METRICS = {  # a field of Metrics: how it is written
    "a_auc": r"$A_{\mathrm{AUC}}$ (%)",
    "a_avg": r"$A_{\mathrm{avg}}$ (%)",
    "a_last": r"$A_{\mathrm{last}}$ (%)",
    "f_last": r"$F_{\mathrm{last}}$ (%), less is better",
}


def arranged(found: Mapping[Planned, Result]) -> dict[str, dict[str, list[Result]]]:
    """Finished runs by column and row, both in the study's order."""
    table: dict[str, dict[str, list[Result]]] = {}
    for planned, result in found.items():
        table.setdefault(planned.column, {}).setdefault(planned.row, []).append(result)
    return table


def numbers(runs: Runs, metric: str) -> dict[str, dict[str, list[float]]]:
    """One number of each run, in percent; a run that has none (joint training has no curve) is left out."""
    written(metric)
    table: dict[str, dict[str, list[float]]] = {}
    for column, rows in runs.items():
        for row, results in rows.items():
            values = [getattr(result.metrics, metric) for result in results]
            if known := [100 * value for value in values if value is not None]:
                table.setdefault(column, {})[row] = known
    return table


def paper_numbers(planned: Sequence[Planned], metric: str) -> dict[str, dict[str, Number]]:
    """The paper's for the same cells; those that are probably copy errors are left out."""
    theirs = next((name for name, field in FIELDS.items() if field == metric), None)
    table: dict[str, dict[str, Number]] = {}
    for one in {(one.column, one.row): one for one in planned}.values():
        method = counterpart(one.experiment)
        number = paper_number(method, theirs, configuration(one.experiment)) if method and theirs else None
        if number is not None and number.warning is None:
            table.setdefault(one.column, {})[one.row] = number
    return table


def written(metric: str) -> str:
    """A metric as an axis names it."""
    if metric not in METRICS:
        raise UnknownNameError("metric", metric, METRICS)
    return METRICS[metric]


def rows_of(cells: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Every row that some column has, each once."""
    return list(dict.fromkeys(row for rows in cells.values() for row in rows))


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds and its sample standard deviation (by n - 1); not a number for a single seed."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
