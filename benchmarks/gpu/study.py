"""Minutes of the paper's column on one GPU: every method, three seeds, one run after the other, by what rows say."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.setup import PAPER, BenchmarkSetup
from iblurry.data.dataset import Dataset
from iblurry.studies.catalogue import MAIN
from iblurry.studies.forecast import run_cost

SEEDS = (1, 2, 3)
REFERENCE = "er"  # whose updates are as large as those of refits


def study_minutes(report: dict[str, Any], setup: BenchmarkSetup, data: Dataset) -> dict[str, Any] | None:
    """A row of the report; None where what it needs was not measured. Starting up is left out, and so is packing."""
    stages = {row["method"]: row for row in report.get("stages", [])}
    stacked = {row["method"]: row["minutes"] for row in report.get("refits", [])}
    if not {*PAPER} <= stages.keys() or not stacked:
        return None
    seconds = {name: _run_seconds(stages[name], stacked.get(name), setup, data) for name in PAPER}
    whole = sum(len(MAIN.seeds_of(name, SEEDS)) * taken for name, taken in seconds.items())
    return {"method": "all", "minutes": whole / 60, "seconds a run": seconds}


def _run_seconds(row: dict[str, Any], stacked: float | None, setup: BenchmarkSetup, data: Dataset) -> float:
    """Of samples, queries and refits; `stacked`: minutes of those that are trained many at a time, with their queries.

    A query is taken to be about all classes, so that this is too much rather than too little.
    """
    experiment = setup.protocol(row["method"])
    learning = len(experiment.order(data)) * row["ms a sample"] / 1000
    if stacked is not None:
        return learning + 60 * stacked
    cost, reference = run_cost(experiment, data), run_cost(setup.protocol(REFERENCE), data)
    updates = cost.training * reference.steps / reference.training if experiment.method.refit else 0
    return learning + (cost.moments * row["ms a query"] + updates * row["stages"]["step"]) / 1000
