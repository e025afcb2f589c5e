import json
from pathlib import Path

import numpy as np
import pytest

from iblurry.experiment.journal import NewClass, Query, Record, Start, TaskEnd
from iblurry.experiment.metrics import Metrics, a_auc, a_avg, a_last, class_accuracy, curve, f_last, metrics

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())


def query(at: int, *accuracy: float) -> Query:
    return Query(at=at, task=0, correct=counts(accuracy), total=(100,) * len(accuracy), rate=0.1, updates=2 * at)


def task_end(at: int, task: int, *accuracy: float) -> TaskEnd:
    return TaskEnd(at=at, task=task, correct=counts(accuracy), total=(100,) * len(accuracy), rate=0.1, updates=2 * at)


def counts(accuracy: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(round(100 * each) for each in accuracy)


def golden_task_ends() -> list[Record]:
    """The golden class accuracies as counts; classes not met yet (0 up to the end of a row) are left out."""
    known = (2, 3, 4)
    rows = GOLDEN["f_last"]["class_accuracy_per_task"]
    return [task_end(100 * (t + 1), t, *row[: known[t]]) for t, row in enumerate(rows)]


def test_a_auc_is_the_mean_of_the_curve() -> None:
    golden = GOLDEN["a_auc"]
    period = golden["eval_period"]
    records = [query(period * (i + 1), accuracy) for i, accuracy in enumerate(golden["accuracies"])]
    area = a_auc(records)
    assert area == pytest.approx(golden["a_auc_fraction"], abs=1e-12)
    assert area is not None
    assert 100 * area == pytest.approx(golden["a_auc_percent"], abs=1e-9)
    assert area * golden["normaliser"] == pytest.approx(golden["paper_sum_times_dn"])


def test_a_avg_and_a_last_are_over_task_ends() -> None:
    golden = GOLDEN["a_avg_a_last"]
    records = [task_end(10 * (t + 1), t, accuracy) for t, accuracy in enumerate(golden["task_acc"])]
    assert a_avg(records) == pytest.approx(golden["a_avg"], abs=1e-12)
    assert a_last(records) == pytest.approx(golden["a_last"], abs=1e-12)


def test_f_last_is_class_wise_and_skips_classes_never_right_before_the_last_task() -> None:
    records = golden_task_ends()
    golden = GOLDEN["f_last"]
    assert class_accuracy(records) == pytest.approx(np.array(golden["class_accuracy_per_task"]))
    assert f_last(records) == pytest.approx(golden["f_last"], abs=1e-11)
    assert f_last(records) == pytest.approx(np.mean(golden["diffs"]), abs=1e-11)


def test_a_avg_is_undefined_without_a_boundary() -> None:
    whole = Start(experiment="x", samples=10, ends=(10,), query_every=5)
    records = [whole, query(5, 0.6), task_end(10, 0, 0.8)]
    assert (a_auc(records), a_avg(records), a_last(records), f_last(records)) == (0.6, None, 0.8, None)
    two = Start(experiment="x", samples=20, ends=(10, 20), query_every=5)
    assert a_avg([two, *records[1:]]) == 0.8  # the first of two tasks has ended


def test_f_last_is_undefined_for_one_task_or_when_nothing_was_right() -> None:
    assert f_last([task_end(10, 0, 0.9)]) is None
    assert f_last([task_end(10, 0, 0.0), task_end(20, 1, 0.5, 0.5)]) is None
    assert f_last([]) is None


def test_f_last_of_classes_that_improved_is_negative() -> None:
    assert f_last([task_end(10, 0, 0.5), task_end(20, 1, 0.75)]) == pytest.approx(-0.25)


def test_class_accuracy_is_exact_where_the_released_program_adds_a_little() -> None:
    golden = GOLDEN["class_accuracy_epsilon"]
    correct, total = golden["correct"], golden["total"]
    end = TaskEnd(at=1, task=0, correct=(correct,), total=(total,), rate=0.1, updates=0)
    assert class_accuracy([end])[0, 0] == 1.0
    assert correct / (total + 1e-5) == pytest.approx(golden["official"], abs=1e-12)


def test_a_class_without_test_images_was_never_right() -> None:
    end = TaskEnd(at=1, task=0, correct=(0, 3), total=(0, 4), rate=0.1, updates=0)
    assert class_accuracy([end]).tolist() == [[0.0, 0.75]]


def test_accuracy_is_the_micro_average() -> None:
    at, accuracy = curve([Query(at=7, task=0, correct=(90, 0), total=(90, 10), rate=0.1, updates=7)])
    assert (at.tolist(), accuracy.tolist()) == ([7], [0.9])  # the macro average is 0.5


def test_a_cifar_run_has_500_points_and_its_task_ends_are_not_among_them() -> None:
    ends = (10_000, 20_000, 30_000, 40_000, 50_000)
    records: list[Record] = [Start(experiment="x", samples=50_000, ends=ends, query_every=100), NewClass(1, "ship")]
    for at in range(100, 50_001, 100):
        records.append(query(at, 0.5))
        if at in ends:
            records.append(task_end(at, ends.index(at), 1.0))
    at, accuracy = curve(records)
    assert at.tolist() == list(range(100, 50_001, 100))
    assert set(accuracy.tolist()) == {0.5}
    assert metrics(records) == Metrics(
        a_auc=0.5, a_avg=1.0, a_last=1.0, f_last=0.0, samples=50_000, updates=100_000, queries=500
    )


def test_a_run_that_has_just_started_has_no_numbers_yet() -> None:
    start = Start(experiment="x", samples=10, ends=(10,), query_every=5)
    nothing = Metrics(a_auc=None, a_avg=None, a_last=None, f_last=None, samples=0, updates=0, queries=0)
    assert metrics([start, NewClass(1, "ship")]) == nothing
    assert metrics([start, query(5, 0.25)]) == Metrics(0.25, None, None, None, samples=5, updates=10, queries=1)
