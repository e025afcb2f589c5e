"""Room: when those who are refused are asked to come back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from iblurry.live.limits import Limits
from iblurry.live.refusal import Refusal
from iblurry.live.room import LATE, SOON, Room
from iblurry.live.settings import Settings


def later(*, rate: float, stalled: str | None = None) -> float | None:
    """Seconds told to one who sends 10 where 995 wait and 1,000 may."""
    room = Room(Settings(image=(1, 8, 8)), Limits(queue=1000))
    standing = SimpleNamespace(learnt=5, samples_per_second=rate, stalled=stalled, sentence="")
    with pytest.raises(Refusal) as refused:
        room.check(10, log=SimpleNamespace(accepted=1000, kept=1000), standing=standing)
    assert (refused.value.status, refused.value.code) == (429, "queue_full")
    return refused.value.retry_after


def test_when_there_will_be_room():
    assert later(rate=10.0) == 0.5
    assert later(rate=0.01) == LATE


def test_one_that_was_just_started_is_asked_again_soon():
    assert later(rate=0.0) == SOON


def test_one_that_learns_no_more_is_asked_seldom():
    assert later(rate=10.0, stalled="The loss is no number.") == LATE
