"""Planning a study: which experiments, in which order, and at which scale."""

from __future__ import annotations

import pytest

from iblurry.data.load import load
from iblurry.errors import DataError, InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.launch.launch import run
from iblurry.parts import Constant
from iblurry.studies.catalogue import COMPUTE, LEADERBOARD, STUDIES, get_study
from iblurry.studies.study import CLASSES, Study, find_finished

TOY = Study(
    name="toy",
    title="Toy",
    shows=(),
    question="Does it plan?",
    datasets=("digits",),
    rows=("clib", "ewc schedule=Constant"),
    columns=lambda dataset: {"N=0": {"disjoint": 0}, "N=100": {"disjoint": 100}},
)
SHAPES = "shapes:classes=4,train=20,test=10,size=8,channels=1"


def test_column_by_column_row_by_row_seed_by_seed():
    planned = TOY.plan("digits", seeds=iter((4, 2)), network="convnet")
    assert [(one.column, one.row, one.experiment.seed) for one in planned] == [
        *(("N=0", "clib", 4), ("N=0", "clib", 2)),
        *(("N=0", "ewc schedule=Constant", 4), ("N=0", "ewc schedule=Constant", 2)),
        *(("N=100", "clib", 4), ("N=100", "clib", 2)),
        *(("N=100", "ewc schedule=Constant", 4), ("N=100", "ewc schedule=Constant", 2)),
    ]
    assert planned[1].experiment == Experiment.of("clib", disjoint=0, seed=2, network="convnet")
    assert planned[6].experiment.method.schedule == Constant()
    assert {one.experiment.stream.disjoint for one in planned[4:]} == {100}


def test_a_row_that_is_run_once_has_the_first_seed():
    planned = get_study("main").plan("digits", rows=["joint", "er"], seeds=(4, 2))
    assert [(one.row, one.experiment.seed) for one in planned] == [("joint", 4), ("er", 4), ("er", 2)]


@pytest.mark.parametrize(
    "study, choice, error, named",
    [
        ("main", {"rows": ["clip"]}, UnknownNameError, "'clip'.*'clib'"),
        ("disjoint", {"columns": ["N=10"]}, UnknownNameError, "'N=10'.*'N=100'"),
        ("main", {"columns": ["N=0"]}, InputError, "'N=0'"),
        ("memory", {"memory": 50}, InputError, "memory"),  # which it varies itself
        ("main", {"scale": 0}, InputError, "0"),
        ("main", {"scale": 1.5}, InputError, "1.5"),
        ("ablations", {}, UnknownNameError, "'ablations'.*'ablation'"),
    ],
)
def test_what_cannot_be_planned(study, choice, error, named):
    with pytest.raises(error, match=named):
        get_study(study).plan("digits", **choice)


def test_a_tenth():
    (one,) = get_study("main").plan("cifar10", rows=["clib"], seeds=[1], scale=0.1)
    assert one.experiment == Experiment.of("clib", "cifar10", share=0.1, memory=50, query_every=10)
    whole = get_study("main").plan("cifar10", scale=1)
    assert [one.experiment for one in whole] == [one.experiment for one in get_study("main").plan("cifar10")]


def test_about_as_many_queries():
    data = load("digits")
    for scale in (0.1, 0.25, 0.5, 1):
        one = TOY.plan("digits", scale=scale)[0].experiment
        assert 56 <= len(one.order(data)) // one.query_every <= 70


@pytest.mark.quick("digits-0.01", "cifar100-0.01")
@pytest.mark.parametrize("scale", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("dataset", ["digits", "cifar100", "tinyimagenet", "imagenet", SHAPES])
def test_memory_enough_for_every_class_the_same_for_all_methods(dataset, scale):
    classes = CLASSES.get(dataset, 4)
    for study in set(STUDIES.values()) - {COMPUTE, LEADERBOARD}:  # the least streams are too short for equal compute
        usual = {one.experiment.memory for one in study.plan(dataset, seeds=[1])}
        planned = study.plan(dataset, seeds=[1], scale=scale)
        for one in planned:
            assert one.experiment.method.capacity(one.experiment.memory) >= 2 * classes
            assert one.experiment.share == scale
        memories = {one.experiment.memory for one in planned}
        ratios = [new / old for new, old in zip(sorted(memories), sorted(usual), strict=True)]
        assert all(scale - 0.02 <= ratio <= 1 for ratio in ratios)
        assert max(ratios) - min(ratios) < 0.02  # in proportion
        by_column = {(one.column, one.experiment.memory) for one in planned}
        assert len(by_column) == len(study.columns(dataset))


def test_memory_columns_say_what_they_have():
    planned = get_study("memory").plan("cifar10", seeds=[1], scale=0.5)
    assert {(one.column, one.experiment.memory) for one in planned} == {("K=100", 100), ("K=250", 250), ("K=500", 500)}
    assert len(get_study("memory").plan("cifar10", seeds=[1], scale=0.5, columns=["K=250"])) == 7


def test_one_experiment_has_one_memory_in_all_studies():
    """So that no study runs again what another has run."""
    planned = [one for study in STUDIES.values() for one in study.plan("digits", seeds=[1], scale=0.1)]
    usual = {one.experiment.memory for one in planned if not one.column.startswith("K=") and one.row == "clib"}
    assert len(usual) == 1


def test_only_data_of_ones_own_are_looked_up(tmp_path):
    for dataset in CLASSES:
        assert TOY.plan(dataset, scale=0.1, data_home=tmp_path)
    with pytest.raises(DataError):
        TOY.plan(str(tmp_path / "mine.npz"), scale=0.1)


def test_runs_are_found_in_the_first_place_that_has_them(tmp_path):
    study = get_study("rm-curve")
    changes = {"network": "mlp", "samples": 20, "query_every": 10, "tasks": 2}
    planned = study.plan(SHAPES, rows=["clib"], seeds=[1, 2], **changes)
    for place in ("first", "second"):
        run(planned[1].experiment, tmp_path / place)
    there = find_finished(planned, [tmp_path / "nothing", tmp_path / "first", tmp_path / "second"])
    assert list(there) == [planned[1]]
    assert there[planned[1]].folder == tmp_path / "first" / planned[1].experiment.name
