"""The time between two runs of a periodic action, by a clock of the test."""

from __future__ import annotations

import pytest

from iblurry.experiment import checkpointer
from iblurry.experiment.checkpointer import Periodic


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(checkpointer, "time", made)
    return made


@pytest.mark.parametrize(
    "seconds, longest, share, takes, pause",
    [
        (30, float("inf"), 0.05, 0.1, 30),  # quick: as often as asked
        (30, float("inf"), 0.05, 10, 190),  # slow: 10 of 200 seconds
        (1, 30, 0.05, 10, 30),  # slow, and there is a longest pause
        (0, float("inf"), 1, 10, 0),  # no limit
    ],
)
def test_pause_after_an_action(clock, seconds, longest, share, takes, pause):
    done = []

    def act():
        done.append(clock.now)
        clock.now += takes

    action = Periodic(act, seconds, longest=longest, share=share)
    action.run()
    ended = clock.now
    assert action.due_at - ended == pytest.approx(pause)
    clock.now = action.due_at - 0.01
    if pause:
        action.run_if_due()
        assert done == [100.0]
    clock.now = action.due_at
    action.run_if_due()
    assert done == [100.0, ended + pause]
