import numpy as np
import pytest

from iblurry.experiment.journal import NewClass, Query, Start, TaskEnd
from iblurry.experiment.metrics import f_last
from iblurry.studies.figures.classes import classwise, first_tasks, lost
from iblurry.studies.figures.edge import names, spread

TWO = [
    Start("x", 40, (20, 40), 10),
    NewClass(1, "cat"),
    NewClass(12, "dog"),
    NewClass(33, "owl"),
    Query(10, 0, (4,), (10,), 0.1, 10),
    Query(20, 0, (9, 1), (10, 5), 0.1, 20),
    TaskEnd(20, 0, (8, 2), (10, 5), 0.1, 20),
    Query(30, 1, (5, 5), (10, 5), 0.1, 30),
    Query(40, 1, (3, 4, 0), (10, 5, 0), 0.1, 40),
    TaskEnd(40, 1, (3, 4, 0), (10, 5, 0), 0.1, 40),
]


def test_accuracy_class_by_class():
    one = classwise(TWO)
    nan = np.nan
    wanted = [[40, 90, 50, 30], [nan, 20, 100, 80], [nan, nan, nan, nan]]  # the owl has no test image
    np.testing.assert_allclose(one.accuracy, wanted)
    assert (one.classes, one.met, list(one.at), one.ends) == (
        ["cat", "dog", "owl"],
        [1, 12, 33],
        [10, 20, 30, 40],
        (20, 40),
    )
    np.testing.assert_allclose(one.lost, [50, -40, nan])  # between the ends of tasks


def test_the_mean_of_what_was_lost_is_f_last(records):
    for seed in range(3):
        journal = records(seed, classes=10, tasks=4)
        assert np.nanmean(lost(journal, 10)) == pytest.approx(100 * f_last(journal))
    assert np.isnan(lost(records(1, tasks=1), 4)).all()


def test_a_class_belongs_to_the_task_of_its_first_sample():
    assert first_tasks([1, 20, 21, 40], [20, 40]) == [0, 0, 1, 1]


def test_names_at_the_edge_are_classes_or_tasks():
    assert names(["cat", "dog"], [1, 30], [20, 40]) == [("cat", 0, 1), ("dog", 1, 2)]
    many = [str(n) for n in range(30)]
    met = [*range(1, 26), 30, 41, 42, 43, 44]
    assert names(many, met, [29, 40, 60]) == [
        ("task 1: 25 classes", 0, 25),
        ("task 2: 1 class", 25, 26),
        ("task 3: 4 classes", 26, 30),
    ]


def test_names_are_moved_apart_and_stay_inside():
    assert spread([0, 5, 9], 1, 10) == [0, 5, 9]
    moved = spread([8.0, 9.0, 9.5, 9.9], 1, 10)
    assert moved == [7, 8, 9, 10]
    assert (np.diff(spread(sorted(np.random.default_rng(0).random(20) * 10), 0.4, 10)) > 0.4 - 1e-9).all()
