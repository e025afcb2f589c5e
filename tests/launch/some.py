"""Runs to launch several at a time, and callbacks that act when one begins."""

from __future__ import annotations

import dataclasses
import fcntl
import time

from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.parts import Constant
from tests.experiment.small import Recorder, small

SOME = [small("er"), small("clib"), small("er", seed=2)]
EXPLODING = dataclasses.replace(
    SOME[0], method=dataclasses.replace(SOME[0].method, name="exploding", schedule=Constant(initial_lr=1e30))
)
SAVE = CheckpointPolicy(samples=2)


class Acting(Recorder):
    """Acts when its run begins, so many times."""

    def __init__(self, act, times=1):
        super().__init__()
        self.act, self.times = act, times

    def on_run_start(self, name, position, samples):
        super().on_run_start(name, position, samples)
        if self.times:
            self.times -= 1
            self.act()


def is_free(folder):
    """Whether nobody holds the lock of a run's folder."""
    with (folder / "lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
