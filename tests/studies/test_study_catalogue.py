"""The catalogue against the paper: no table and no cell of it is missing, and what it varies is what it names."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from iblurry.analysis.describe import JOINT, run_command
from iblurry.data.load import load
from iblurry.studies.catalogue import STUDIES
from iblurry.studies.paper import COUNTERPARTS, PAPER_METRICS, Configuration, configuration_of, find_counterpart

NUMBERS = json.loads(resources.files("iblurry.studies").joinpath("paper.json").read_text(encoding="utf-8"))["numbers"]
TABLES = sorted({table for line in NUMBERS for table in line["tables"]})
SHAPES = "shapes:classes=10,train=40,test=10,size=8,channels=1"


@pytest.fixture(scope="module")
def cells():
    """(place, data set, configuration, the paper's row, its metric) of everything that is planned."""
    planned = set()
    for study in STUDIES.values():
        for dataset in study.datasets if study.shows else ():
            for one in study.plan(dataset, seeds=[1]):
                where = None if one.row == JOINT else configuration_of(one.experiment)
                for place in study.shows:
                    for metric, field in PAPER_METRICS.items():
                        if field in study.metrics:
                            planned.add((place, dataset, where, COUNTERPARTS[one.row], metric))
    return planned


@pytest.mark.parametrize("table", TABLES)
def test_no_cell_of_the_table_is_missing(table, cells):
    for line in NUMBERS:
        if table in line["tables"]:
            place = [line[key] for key in ("dataset", "N", "M", "K", "tasks")]
            where = None if line["N"] is None else Configuration(*place)
            assert (f"Table {table}", line["dataset"], where, line["method"], line["metric"]) in cells, line


def test_every_table_and_every_figure_with_data():
    shown = [place for study in STUDIES.values() for place in study.shows]
    assert {f"Table {n}" for n in range(1, 10)} == {f"Table {n}" for n in TABLES}
    assert {place for place in shown if place.startswith("Table")} == {f"Table {n}" for n in TABLES}
    # Figure 1 draws the split and Figure 3 the method: they have no data.
    assert sorted(place for place in shown if place.startswith("Figure")) == ["Figure 2", "Figure 4", "Figure 5"]


def test_tables_have_no_rows_and_columns_that_the_paper_has_not():
    there = {(line["dataset"], line["method"], table) for line in NUMBERS for table in line["tables"]}
    for study in STUDIES.values():
        tables = [int(place.split()[1]) for place in study.shows if place.startswith("Table")]
        for dataset in study.datasets:
            for row in study.rows if tables else ():
                assert any((dataset, COUNTERPARTS[row], table) in there for table in tables), (study.name, row)


def test_columns_are_the_papers():
    def columns(name, dataset):
        return [dict(varied) for varied in STUDIES[name].columns(dataset).values()]

    assert columns("disjoint", "cifar10") == [{"disjoint": n} for n in (0, 50, 100)]
    assert columns("blur", "cifar10") == [{"blur": m} for m in (10, 30, 50)]
    assert columns("memory", "cifar10") == [{"memory": k} for k in (200, 500, 1000)]
    assert columns("tasks", "cifar100") == [{"tasks": t} for t in (5, 10, 25)]
    assert columns("tasks", "imagenet:/somewhere") == columns("tasks", "cifar100")
    assert columns("n0-curve", "cifar10") == [{"disjoint": 0}]


def test_rows_are_exactly_the_papers_methods():
    for study in STUDIES.values():
        if study.shows:
            for dataset in study.datasets:
                for one in study.plan(dataset, seeds=[1]):
                    assert find_counterpart(one.experiment) == one.row


LARGE = [pytest.param(dataset, marks=pytest.mark.slow) for dataset in ("cifar100", "tinyimagenet", "imagenet")]


@pytest.mark.parametrize("dataset", ["digits", SHAPES, "cifar10", *LARGE])
@pytest.mark.parametrize("name", STUDIES)
def test_no_two_places_hold_the_same_experiment(name, dataset):
    study = STUDIES[name]
    planned = [one for one in study.plan(dataset) if one.row != getattr(study, "reference", None)]
    digests = [one.experiment.digest for one in planned]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("name", STUDIES)
def test_every_experiment_has_a_command(name):
    for one in STUDIES[name].plan("digits", seeds=[1]):
        assert run_command([one.experiment]).startswith("iblurry run ")


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 0.1])
def test_every_study_fits_small_data(scale):
    data = {dataset: load(dataset) for dataset in ("digits", SHAPES)}
    checked = {}
    for study in STUDIES.values():
        for dataset in data:
            for one in study.plan(dataset, seeds=[1], scale=scale, network="mlp"):
                checked[one.experiment.digest] = (one.experiment, data[dataset])
    for experiment, its_data in checked.values():
        experiment.check(its_data)
        assert len(experiment.order(its_data).tasks) == experiment.stream.tasks
