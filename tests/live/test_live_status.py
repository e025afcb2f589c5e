"""Test-then-train: counts, windows, drift and the curve, against plain lists."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from iblurry.live import quality as module
from iblurry.live.quality import NO_CLASS, UNTESTED, Quality

LABELS = ["a", "b", "c"]


@pytest.fixture
def told():
    """A hundred samples of three classes: (row, answer)."""
    generator = np.random.default_rng(1)
    rows = np.concatenate([generator.integers(0, 2, 60), generator.integers(0, 3, 40)]).tolist()
    answers = [row if generator.random() < 0.7 else (row + 1) % 3 for row in rows]
    return [(row, answers[i] if row in rows[:i] else UNTESTED) for i, row in enumerate(rows)]


def noted(told, window=20):
    quality = Quality(3, window=window)
    for row, answer in told:
        quality.record(row, answer)
    return quality


def share(told):
    tested = [answer == row for row, answer in told if answer != UNTESTED]
    return sum(tested) / len(tested) if tested else None


@pytest.mark.parametrize("count", [1, 7, 20, 39, 40, 57, 100])
def test_against_plain_lists(told, count):
    some = told[:count]
    quality = noted(some)
    assert quality.accuracy == share(some)
    assert quality.recent_accuracy == share(some[-20:])
    recent, before = [row for row, _ in some[-20:]], [row for row, _ in some[-40:-20]]
    apart = sum(abs(recent.count(row) / 20 - before.count(row) / 20) for row in range(3)) / 2
    assert quality.drift == (pytest.approx(apart) if count >= 40 else None)
    for row, about in enumerate(quality.classes(LABELS)):
        mine = [one for one in some if one[0] == row]
        assert about["seen"] == len(mine)
        assert about["first"] == (some.index(mine[0]) + 1 if mine else None)
        assert about["accuracy"] == share(mine)
        assert about["recent_accuracy"] == share([one for one in some[-20:] if one[0] == row])
        assert about["recent_share"] == recent.count(row) / len(recent)
        assert about["before_share"] == (before.count(row) / 20 if count >= 40 else None)


def test_nothing_yet():
    quality = Quality(3)
    assert (quality.accuracy, quality.recent_accuracy, quality.drift) == (None, None, None)
    assert quality.classes([]) == []


def test_the_curve_is_thinned_evenly(monkeypatch):
    monkeypatch.setattr(module, "POINTS", 8)
    quality = Quality(1, window=4)
    points = []
    for i in range(1, 401):
        quality.record(0, 0 if i % 3 else NO_CLASS)
        if (point := quality.add_point(learning_rate=0.1 / i, classes=1, time=100.0 + i)) is not None:
            points.append(point)
    at = [point["at"] for point in quality.points]
    assert len(at) <= 8
    assert set(np.diff(at)) == {quality.every} == {80}
    assert points[0] == {
        "at": 10,
        "time": 110.0,
        "accuracy": 0.7,
        "recent_accuracy": 0.75,  # samples 7 to 10
        "tested": 10,
        "right": 7,
        "held_out_accuracy": None,
        "learning_rate": 0.01,
        "classes": 1,
    }
    assert all(point in points for point in quality.points)


def test_it_goes_on_where_it_was(told):
    whole, first = noted(told), noted(told[:33])
    other = Quality(3, window=20)
    other.load_state_dict({k: v.copy() if isinstance(v, np.ndarray) else v for k, v in first.state_dict().items()})
    for row, answer in told[33:]:
        other.record(row, answer)
    assert other.classes(LABELS) == whole.classes(LABELS)
    assert other.confusion(LABELS) == whole.confusion(LABELS)
    assert other.totals == whole.totals
    assert (other.accuracy, other.drift) == (whole.accuracy, whole.drift)


@pytest.mark.parametrize("count", [0, 1, 7, 20, 57, 100])
def test_confusion_against_plain_lists(told, count):
    recent = [(LABELS[row], LABELS[answer]) for row, answer in told[:count][-20:] if answer != UNTESTED]
    found = {(one["label"], one["answer"]): one["count"] for one in noted(told[:count]).confusion(LABELS)}
    assert found == Counter(recent)


def test_there_are_no_more_pairs_than_recent_samples():
    quality = Quality(300, window=50)
    for number in range(1000):
        quality.record(number % 300, (number * 7) % 300)
    found = quality.confusion([str(row) for row in range(300)])
    assert len(found) == sum(one["count"] for one in found) == 50
