"""Signals: the first is a request, the second ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from iblurry.launch.processes import stop_on_signals


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks(number):
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop.is_set
        send(number)
        assert stop.is_set
    assert signal.getsignal(number) is before


def test_the_second_is_not_caught():
    with stop_on_signals() as stop:
        send(signal.SIGINT)
        assert stop.is_set
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_patient_one_hears_any_number():
    with stop_on_signals(repeatedly=True) as stop:
        for _ in range(3):
            send(signal.SIGTERM)
            send(signal.SIGINT)
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
