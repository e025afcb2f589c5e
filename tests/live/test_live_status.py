"""Test-then-train: counts, windows, drift and the curve, against plain lists."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from iblurry.live import status as module
from iblurry.live.messages import LearnerReport
from iblurry.live.quota import Limits, Quota, Refusal
from iblurry.live.settings import Settings
from iblurry.live.status import RIGHT, UNTESTED, WRONG, Quality, ServiceStatus

SMALL = Settings(network="mlp", image=(1, 8, 8), memory=20, max_classes=12, batch=4)
LABELS = ["a", "b", "c"]


@pytest.fixture
def told():
    """A hundred samples of three classes: (row, outcome)."""
    generator = np.random.default_rng(1)
    rows = np.concatenate([generator.integers(0, 2, 60), generator.integers(0, 3, 40)]).tolist()
    return [(row, UNTESTED if row not in rows[:i] else int(generator.random() < 0.7)) for i, row in enumerate(rows)]


def noted(told, window=20):
    quality = Quality(3, window=window)
    for row, outcome in told:
        quality.record(row, outcome)
    return quality


def share(told):
    tested = [outcome for _, outcome in told if outcome != UNTESTED]
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
        quality.record(0, RIGHT if i % 3 else WRONG)
        if (point := quality.add_point(learning_rate=0.1 / i, classes=1)) is not None:
            points.append(point)
    at = [point["at"] for point in quality.points]
    assert len(at) <= 8
    assert set(np.diff(at)) == {quality.every} == {80}
    assert points[0] == {
        "at": 10,
        "accuracy": 0.7,
        "recent_accuracy": 0.75,  # samples 7 to 10
        "learning_rate": 0.01,
        "classes": 1,
    }
    assert all(point in points for point in quality.points)


def test_it_goes_on_where_it_was(told):
    whole, first = noted(told), noted(told[:33])
    other = Quality(3, window=20)
    other.load_state_dict({k: v.copy() if isinstance(v, np.ndarray) else v for k, v in first.state_dict().items()})
    for row, outcome in told[33:]:
        other.record(row, outcome)
    assert other.classes(LABELS) == whole.classes(LABELS)
    assert (other.accuracy, other.drift) == (whole.accuracy, whole.drift)


def test_one_sample_is_not_called_samples():
    status = ServiceStatus(SMALL, Limits(queue=1))
    status.start(SimpleNamespace(accepted=6, operations=6, rehearsed=0, kept=1, labels=[]))
    status.update(LearnerReport(learnt=5, applied=5))
    assert status.sentence == "1 sample from before the last start is being learnt."
    with pytest.raises(Refusal, match=r"^1 sample waits to be learnt, and 1 may; send this one again later\.$"):
        Quota(SMALL, status.limits).check(1, status=status)
    status.log.accepted = 7
    assert status.sentence == "2 samples from before the last start are being learnt."
    status.update(LearnerReport(learnt=6, applied=6))
    assert status.sentence == "1 sample waits to be learnt."
