"""Metrics of single classes: each recomputed in a few lines of NumPy from right answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iblurry.errors import UnknownNameError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import NewClass, Query, Start, TaskEnd
from iblurry.experiment.metrics import (
    CLASS_METRICS,
    CURVES,
    aaa,
    balanced_acc,
    forgetting,
    min_acc,
    wc_acc,
    windowed_change,
    worst_cases,
    worst_class,
)
from iblurry.experiment.result import read_result

CLASS_CURVES = ("balanced_acc", "forgetting", "min_acc", "wc_acc", "worst_class")
MET = {"cat": 1, "dog": 3, "emu": 41, "gnu": 80}  # gnu has no test images
TOTAL = (10, 20, 5, 0)
RIGHT = np.array(  # a row per query: at samples 10, 20, ..., 100
    [
        *([5, 2, 0, 0], [8, 10, 0, 0], [6, 4, 0, 0], [9, 12, 0, 0], [3, 2, 1, 0]),
        *([7, 20, 4, 0], [8, 8, 5, 0], [2, 18, 2, 0], [6, 16, 5, 0], [7, 10, 3, 0]),
    ]
)
RESULTS = Path(__file__).parents[2] / "results"
AT = np.arange(10, 101, 10)


def journal():
    records = [Start("0" * 12, 100, (50, 100), 10)]
    for at, right in zip(AT.tolist(), RIGHT.tolist(), strict=True):
        known = sum(first <= at for first in MET.values())
        records += [NewClass(first, label) for label, first in MET.items() if at - 10 < first <= at]
        records.append(Query(at, (at - 1) // 50, tuple(right[:known]), TOTAL[:known], 0.1, at))
        if at in (50, 100):
            records.append(TaskEnd(at, (at - 1) // 50, tuple(right[:known]), TOTAL[:known], 0.1, at))
    return records


def accuracies():
    """(queries, three classes with test images), not a number before a class was met."""
    table = RIGHT[:, :3] / np.array(TOTAL[:3])
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
