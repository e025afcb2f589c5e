"""Every study, end to end on drawn shapes: one experiment of each column."""

from __future__ import annotations

from itertools import count

import pytest

from iblurry.analysis.table import TABLE_METRICS
from iblurry.components.edit import edit
from iblurry.data.load import load
from iblurry.launch.launch import run
from iblurry.studies.catalogue import STUDIES

SHAPES = "shapes:classes=10,train=6,test=4,size=8,channels=1"
CELLS = [  # another row each time, so that most methods have their turn
    pytest.param(study.name, column, rows[next(turn) % len(rows)], marks=[pytest.mark.slow] * (nth > 0))
    for turn in (count(),)
    for study in STUDIES.values()
    for nth, column in enumerate(study.columns(SHAPES))
    for rows in [[row for row in study.rows if study.has(row, column)]]
]


@pytest.fixture(scope="module")
def data():
    return load(SHAPES)


@pytest.mark.parametrize("name, column, row", CELLS)
def test_it_runs(name, column, row, data, tmp_path):
    study = STUDIES[name]
    columns = [column] if column else None
    (one,) = study.plan(SHAPES, rows=[row], columns=columns, seeds=[1], network="mlp:width=16", query_every=15)
    experiment = one.experiment
    if experiment.method.refit is not None:
        experiment = edit(experiment, "readout.epochs=1")
    result = run(experiment, tmp_path, dataset=data)
    assert result.summary is not None
    assert result.metrics.samples == 60
    there = {metric: TABLE_METRICS[metric].value(result) for metric in study.metrics}
    if row == "joint":
        assert [metric for metric, value in there.items() if value is not None] == ["a_last"]
    else:
        assert None not in there.values()
        assert result.metrics.queries == 4
