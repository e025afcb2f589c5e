"""Processes that end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from iblurry.launch.processes import end_with_parent


def _sleep(pipe, child):
    """A process that never ends by itself, and its child."""
    end_with_parent()
    if child:
        context = multiprocessing.get_context("spawn")
        context.Process(target=_sleep, args=(pipe, False), daemon=True).start()
    else:
        pipe.send(os.getpid())
    time.sleep(600)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_when_its_parent_is_killed(number):
    here, there = multiprocessing.Pipe()
    parent = multiprocessing.get_context("spawn").Process(target=_sleep, args=(there, True))
    parent.start()
    child = here.recv()
    os.kill(child, 0)
    os.kill(parent.pid, number)
    parent.join()
    there.close()
    with pytest.raises(EOFError):  # the child held the other end
        here.poll(10) and here.recv()
