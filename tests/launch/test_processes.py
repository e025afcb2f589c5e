"""How processes end: the first signal is a request, the second ends the process, and a parent takes its child along."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from iblurry.launch.processes import end_with_parent, stop_on_signals


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_is_not_caught(number):
    def usual(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(number, usual)
    try:
        with stop_on_signals() as stop:
            assert not stop.is_set
            send(number)
            assert stop.is_set
            with pytest.raises(KeyboardInterrupt):
                send(number)
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, before)


def test_a_patient_one_hears_any_number():
    with stop_on_signals(repeatedly=True) as stop:
        for number in (signal.SIGTERM, signal.SIGINT) * 3:
            send(number)
        assert stop.is_set


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            send(signal.SIGINT)
            assert not stop.is_set
            send(signal.SIGTERM)
            assert stop.is_set
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_hears_nothing_and_takes_nothing():
    heard = []

    def work():
        with stop_on_signals() as stop:
            heard.append(stop.is_set)

    with stop_on_signals() as stop:
        send(signal.SIGTERM)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert stop.is_set
    assert heard == [False]


def test_the_second_sigterm_ends_the_process():
    code = (
        "import os, signal; from iblurry.launch.processes import stop_on_signals\n"
        "with stop_on_signals() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGTERM); print(stop.is_set, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM); print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("True\n", -signal.SIGTERM)


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
