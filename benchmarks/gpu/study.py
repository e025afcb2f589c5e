"""Minutes of the paper's column on one GPU: every method, three seeds, one run after the other, by what rows say."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.setup import PAPER, BenchmarkSetup
from iblurry.analysis.compute import compute_estimate, size_of, training_flops
from iblurry.data.dataset import Dataset
from iblurry.studies.catalogue import MAIN

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
    order, reference, of = experiment.order(data), setup.protocol(REFERENCE), size_of(data)
    curve = range(experiment.query_every, len(order) + 1, experiment.query_every)
    moments = 1 if experiment.method.readout.only_at_end else len({*curve, *map(int, order.ends)})
    updates = 0.0
    if experiment.method.refit:
        steps = compute_estimate(reference, of).earned * float(reference.method.pace.updates_per_sample)
        updates = training_flops(experiment, of) * steps / training_flops(reference, of)
    return learning + (moments * row["ms a query"] + updates * row["stages"]["step"]) / 1000
