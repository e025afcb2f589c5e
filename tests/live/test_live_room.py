"""Room: when those who are refused are asked to come back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from iblurry.live.quota import MAX_RETRY, MIN_RETRY, Limits, Quota, Refusal
from iblurry.live.settings import Settings


def later(*, rate: float, stalled: str | None = None) -> float | None:
    """Seconds told to one who sends 10 where 995 wait and 1,000 may."""
    quota = Quota(Settings(image=(1, 8, 8)), Limits(queue=1000))
    status = SimpleNamespace(learnt=5, samples_per_second=rate, stalled=stalled, sentence="")
    with pytest.raises(Refusal) as refused:
        quota.check(10, log=SimpleNamespace(accepted=1000, kept=1000), status=status)
    assert (refused.value.status, refused.value.code) == (429, "queue_full")
    return refused.value.retry_after


def test_when_there_will_be_room():
    assert later(rate=10.0) == 0.5
    assert later(rate=0.01) == MAX_RETRY


def test_one_that_was_just_started_is_asked_again_soon():
    assert later(rate=0.0) == MIN_RETRY


def test_one_that_learns_no_more_is_asked_seldom():
    assert later(rate=10.0, stalled="The loss is no number.") == MAX_RETRY
