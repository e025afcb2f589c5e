"""Metrics of a journal: against golden numbers, and recomputed in a few lines of NumPy from right answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Answers, NewClass, Query, Record, Start, TaskEnd, decode, encode
from iblurry.experiment.metrics import (
    CLASS_METRICS,
    CURVES,
    Metrics,
    a_auc,
    a_avg,
    a_last,
    aaa,
    balanced_acc,
    class_accuracy,
    curve,
    f_last,
    forgetting,
    kgr,
    klr,
    metrics,
    min_acc,
    wc_acc,
    windowed_change,
    worst_cases,
    worst_class,
)
from iblurry.experiment.result import read_result

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())
RESULTS = Path(__file__).parents[2] / "results"


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


CLASS_CURVES = ("balanced_acc", "forgetting", "min_acc", "wc_acc", "worst_class")
MET = {"cat": 1, "dog": 3, "emu": 41, "gnu": 80}  # gnu has no test images
ASKED = (10, 20, 5, 0)
RIGHT = np.array(  # a row per query: at samples 10, 20, ..., 100
    [
        *([5, 2, 0, 0], [8, 10, 0, 0], [6, 4, 0, 0], [9, 12, 0, 0], [3, 2, 1, 0]),
        *([7, 20, 4, 0], [8, 8, 5, 0], [2, 18, 2, 0], [6, 16, 5, 0], [7, 10, 3, 0]),
    ]
)
AT = np.arange(10, 101, 10)


def journal():
    records = [Start("0" * 12, 100, (50, 100), 10)]
    for at, right in zip(AT.tolist(), RIGHT.tolist(), strict=True):
        known = sum(first <= at for first in MET.values())
        records += [NewClass(first, label) for label, first in MET.items() if at - 10 < first <= at]
        records.append(Query(at, (at - 1) // 50, tuple(right[:known]), ASKED[:known], 0.1, at))
        if at in (50, 100):
            records.append(TaskEnd(at, (at - 1) // 50, tuple(right[:known]), ASKED[:known], 0.1, at))
    return records


def accuracies():
    """(queries, three classes with test images), not a number before a class was met."""
    table = RIGHT[:, :3] / np.array(ASKED[:3])
    table[AT < 41, 2] = np.nan
    return table


def same(points, by_hand):
    return np.array(points) == pytest.approx(np.array(list(by_hand)))


def test_equal_weights():
    by_hand = np.nanmean(accuracies(), axis=1)
    assert same(balanced_acc(journal()), zip(AT, by_hand, strict=True))
    assert aaa(journal()) == pytest.approx(by_hand.mean())


def test_forgetting_is_from_the_best_so_far():
    table = accuracies()
    by_hand = []
    for n, at in enumerate(AT):
        known = table[: n + 1, : 2 if at < 41 else 3]
        by_hand.append((at, np.mean(np.nanmax(known, axis=0) - known[n])))
    assert same(forgetting(journal()), by_hand)
    assert forgetting(journal())[3][1] == pytest.approx(0.0)
    assert forgetting(journal())[4][1] == pytest.approx((0.6 + 0.5 + 0.0) / 3)


@pytest.mark.parametrize("after", [None, 1, 25])
def test_worst_cases_begin_when_a_class_is_learnt(after):
    table, wait = accuracies(), 10 if after is None else after  # a tenth of the stream
    least, worst_case, lowest = [], [], []
    for n, at in enumerate(AT):
        since = {c: [m for m in range(n + 1) if AT[m] >= first + wait] for c, first in enumerate((1, 3, 41))}
        learnt = {c: min(table[m, c] for m in points) for c, points in since.items() if points}
        known = [c for c, first in enumerate((1, 3, 41)) if first <= at]
        worst_case.append((at, np.mean([learnt.get(c, table[n, c]) for c in known])))
        if learnt:
            least.append((at, np.mean(list(learnt.values()))))
            lowest.append((at, min(table[n, c] for c in learnt)))
    assert same(min_acc(journal(), after), least)
    assert same(wc_acc(journal(), after), worst_case)
    assert same(worst_class(journal(), after), lowest)
    assert worst_cases(journal(), after) == pytest.approx(
        dict(zip(("cat", "dog", "emu"), learnt.values(), strict=True))
    )


def test_worst_case_of_one_class_being_learnt_is_de_langes():
    """WC-ACC = A_k / k + (1 - 1 / k) min-ACC."""
    at = 50  # emu has just come
    least, worst = dict(min_acc(journal()))[at], dict(wc_acc(journal()))[at]
    assert worst == pytest.approx(accuracies()[4, 2] / 3 + (1 - 1 / 3) * least)


@pytest.mark.parametrize("window", [2, 3, 10, 100])
def test_windows(window):
    table = accuracies()
    falls, rises = [], []
    for column in table.T:
        known = column[~np.isnan(column)]
        pairs = [known[i] - known[j] for i in range(len(known)) for j in range(i + 1, min(i + window, len(known)))]
        falls.append(max(pairs))
        rises.append(-min(pairs))
    assert windowed_change(journal(), window, 1) == pytest.approx(np.mean(falls))
    assert windowed_change(journal(), window, -1) == pytest.approx(np.mean(rises))


def test_what_was_never_asked_has_none():
    for records in ([], journal()[:2], [one for one in journal() if not isinstance(one, Query)]):
        assert all(curve(records) == [] for curve in CURVES.values())
        assert all(metric(records) is None for metric in CLASS_METRICS.values())
        assert worst_cases(records) == {}


def test_a_committed_result_has_them_all():
    folder = next(path.parent for path in sorted(RESULTS.glob("**/summary.json")))
    result = read_result(RunFolder(folder))
    numbers = {name: result.metric(name) for name in (*CLASS_CURVES, *CLASS_METRICS)}
    assert all(0 <= value <= 1 for value in numbers.values())
    assert numbers["worst_class"] <= numbers["balanced_acc"]
    assert numbers["min_acc"] <= numbers["balanced_acc"] + 1e-12
    assert numbers["wf10"] <= numbers["wf100"]
    assert numbers["aaa"] == pytest.approx(result.metrics.a_auc, abs=0.02)  # classes with equally many test images
    assert result.metric("forgetting:max") >= result.metric("forgetting:mean") > 0
    assert result.metric("a_auc") == result.metrics.a_auc
    assert min(result.worst_cases.values()) == pytest.approx(result.metric("worst_class:min"))
    for wrong in ("min_ac", "forgetting:median", "a_auc:max"):
        with pytest.raises(UnknownNameError):
            result.metric(wrong)


N, TOTAL = 4, (30, 20, 25, 15)


def answers(at, known, seed, skill=0.6):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(N), TOTAL)
    guess = rng.choice(known, len(y))
    chosen = np.where((rng.random(len(y)) < skill) & np.isin(y, known), y, guess)
    return Answers.of(at, chosen, TOTAL, tuple(known))


FIRST, SECOND = answers(10, [2, 0], 1), answers(20, [2, 0, 3], 2)


def counted(then, now):
    table = np.zeros((N, N, N))
    for cell in zip(now.targets, then.chosen, now.chosen, strict=True):
        table[cell] += 1
    return table / table.sum()


def modelled(then, now):
    """As released: cell by cell, and the cells of right answers at both moments at last."""
    y, eps = now.targets, 1e-10
    p1, p2 = (np.bincount(one.chosen, minlength=N) / len(y) for one in (then, now))
    table = np.zeros((N, N, N))
    for i in range(N):
        right1, right2 = (one.chosen[y == i] == i for one in (then, now))
        both, only1, only2 = (right1 & right2).mean(), (right1 & ~right2).mean(), (~right1 & right2).mean()
        none = max(1 - (right1 | right2).mean(), eps)
        u, v = (p1 / (1 - p1[i]), p2 / (1 - p2[i]))
        if i in then.known:
            u[i] = only1 / none
        if i in now.known:
            v[i] = only2 / none
        table[i] = (y == i).mean() * none * np.outer(u, v)
        if i in then.known and i in now.known:
            table[i, i, i] = (y == i).mean() * both
    return table


def ratios(table, met):
    """By the definition, cell by cell."""
    y_a, y_b, a_b = table.sum(2), table.sum(1), table.sum(0)
    y, a, b = y_a.sum(1), y_a.sum(0), y_b.sum(0)
    lost = gained = before = 0.0
    for i, j, k in np.argwhere(table > 0):
        p = table[i, j, k]
        lost += p * np.log(b[k] * p / (a_b[j, k] * y_b[i, k]))
        gained += p * np.log(a[j] * p / (a_b[j, k] * y_a[i, j]))
    for i, j in np.argwhere(y_a > 0):
        before += y_a[i, j] * np.log(y_a[i, j] / (y[i] * a[j]))
    n = np.log(N)
    return (lost / n) / (before / n), (gained / n) / (np.log(met) / n - before / n)


@pytest.mark.parametrize("rule, joint", [("counted", counted), ("released", modelled)])
def test_golden(rule, joint):
    lost, gained = ratios(joint(FIRST, SECOND), 3)
    assert joint(FIRST, SECOND).sum() == pytest.approx(1)
    ((at, value),) = klr([FIRST, SECOND], rule)
    assert (at, value) == (20, pytest.approx(lost, abs=1e-7))
    (first, _), second = kgr([FIRST, SECOND], rule)
    assert (first, second) == (10, (20, pytest.approx(gained, abs=1e-7)))


def test_the_first_moment_gains_from_nothing():
    """KGR = I(y; b) / log C2."""
    y, b = FIRST.targets, FIRST.chosen
    table = np.histogram2d(y, b, bins=[range(N + 1), range(N + 1)])[0] / len(y)
    known = table > 0
    alone = np.outer(table.sum(1), table.sum(0))
    information = (table[known] * np.log(table[known] / alone[known])).sum()
    assert kgr([FIRST]) == [(10, pytest.approx(information / np.log(2)))]
    assert klr([FIRST]) == []


@pytest.mark.parametrize("rule", ["counted", "released"])
def test_extremes(rule):
    right, other = answers(10, [0, 1, 2, 3], 3, skill=1.0), answers(20, [0, 1, 2, 3], 4, skill=0.0)
    same = answers(30, [0, 1, 2, 3], 4, skill=0.0)
    (_, stayed), *_ = klr([right, answers(20, [0, 1, 2, 3], 5, skill=1.0)], rule)
    assert stayed == pytest.approx(0, abs=1e-9)
    assert klr([right, other], rule)[0][1] > 0.9
    assert klr([other, same], "counted")[0][1] == pytest.approx(0, abs=1e-9)  # the same answers know the same
    one = Answers.of(10, np.full(sum(TOTAL), 2), TOTAL, (2,))
    assert klr([one, other], rule) == kgr([one], rule) == []  # who knows one class knows nothing


def test_a_record_of_answers_is_a_line():
    line = encode(FIRST)
    assert decode(line.rstrip()) == FIRST
    assert len(line) < 2 * sum(TOTAL) + 100
    many = Answers.of(5, np.full(300, 299), (1,) * 300, (0, 299))
    assert decode(encode(many).rstrip()).chosen.tolist() == [299] * 300
    for wrong in ({"answers": "AAA="}, {"answers": "?"}, {"known": (1,)}, {"total": (90, 1)}):
        with pytest.raises(InputError, match="answers"):
            Answers(**{"at": 10, "total": TOTAL, "known": FIRST.known, "answers": FIRST.answers} | wrong)
