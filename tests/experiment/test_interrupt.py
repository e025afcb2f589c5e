"""Signals: the first is a question, the second is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from iblurry.experiment.interrupt import stopping_politely


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks(number):
    before = signal.getsignal(number)
    with stopping_politely() as stop:
        assert not stop.asked
        send(number)
        assert stop.asked
    assert signal.getsignal(number) is before


def test_the_second_is_not_caught():
    with stopping_politely() as stop:
        send(signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_patient_one_hears_any_number():
    with stopping_politely(patient=True) as stop:
        for _ in range(3):
            send(signal.SIGTERM)
            send(signal.SIGINT)
        assert stop.asked


def test_runs_in_a_row_hear_it_together():
    with stopping_politely() as outer:
        with stopping_politely() as first:
            send(signal.SIGTERM)
        assert outer.asked
        assert first.asked
        with stopping_politely() as second:
            assert second.asked
    with stopping_politely() as later:
        assert not later.asked


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping_politely() as stop:
            send(signal.SIGINT)
            assert not stop.asked
            send(signal.SIGTERM)
            assert stop.asked
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_hears_nothing_and_takes_nothing():
    heard = []

    def work():
        with stopping_politely() as stop:
            heard.append(stop.asked)

    with stopping_politely() as stop:
        send(signal.SIGTERM)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert stop.asked
    assert heard == [False]


def test_the_second_sigterm_ends_the_process():
    code = (
        "import os, signal; from iblurry.experiment.interrupt import stopping_politely\n"
        "with stopping_politely() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGTERM); print(stop.asked, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM); print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("True\n", -signal.SIGTERM)
