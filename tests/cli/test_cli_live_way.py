"""`iblurry live send` when something comes between: interruptions, a service that is away or restarted."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from iblurry.data.load import load
from iblurry.errors import ServiceError
from iblurry.live.client import Client
from iblurry.rng import Rng

# interruptions


def pressed(monkeypatch, *, at, times=1):
    """Ctrl-C when the service has done what it was asked but before its answer is heard."""
    call, calls = Client._call, []

    def interrupted(self, method, path, *rest):
        answer = call(self, method, path, *rest)
        calls.extend([path] if method == "POST" else [])
        if method == "POST" and at <= len(calls) < at + times:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(Client, "_call", interrupted)


def test_an_interruption_says_what_was_accepted_and_the_same_command_sends_the_rest(call, service, monkeypatch):
    with monkeypatch.context() as patch:
        pressed(patch, at=3)
        said = call("live", "send", "digits", "--limit", 300, "--resume-key", "today")
    assert (said.code, said.out) == (130, "")
    assert "192 of 300" in said.err
    assert len(service.samples) == 192
    again = call("live", "send", "digits", "--limit", 300, "--resume-key", "today")
    assert again.out.startswith("300 samples accepted, 192 of which were accepted before; 300 learnt")
    digits = load("digits")
    rows = Rng(1).permutation("send", 0, len(digits.train))[:300]
    assert [content for _, content in service.samples] == [digits.train.images[row].tobytes() for row in rows]


def test_an_interruption_without_a_key(call, service, monkeypatch):
    pressed(monkeypatch, at=2)
    said = call("live", "send", "digits", "--limit", 300)
    assert said.code == 130
    assert "128 of 300" in said.err
    assert len(service.samples) == 128


def test_two_interruptions_leave_some_in_doubt(call, service, monkeypatch):
    pressed(monkeypatch, at=2, times=2)
    said = call("live", "send", "digits", "--limit", 300)
    assert said.code == 130
    assert "64 of 300 samples are accepted, and perhaps some of the next 64" in said.err
    assert len(service.samples) == 128


def test_an_interruption_while_it_learns(call, service, monkeypatch):
    def wait(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "wait", wait)
    said = call("live", "send", "digits", "--limit", 100)
    assert "100 of 100" in said.err
    assert said.code == 130


def test_ctrl_c_while_the_queue_is_full(service, program, here):
    service.troubles = ["", *["busy"] * 99]
    command = [*program, "live", "send", "digits", "--limit", "128"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while len(service.requests) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("iblurry: Interrupted: 64 of 128")
    assert len(service.samples) == 64


def test_other_samples_under_the_same_key(refused, call, service):
    assert call("live", "send", "digits", "--limit", 100, "--resume-key", "today").code == 0
    said = refused("live", "send", "digits", "--limit", 100, "--seed", 2, "--resume-key", "today")
    assert "--resume-key today" in said
    assert len(service.samples) == 100


def test_a_restart_with_another_queue_in_between(call, service):
    service.queue_limit = 20
    assert call("live", "send", "digits", "--limit", 60, "--resume-key", "q1").code == 0
    service.queue_limit = 1000
    said = call("live", "send", "digits", "--limit", 60, "--resume-key", "q1")
    assert said.out.startswith("60 samples accepted, 60 of which were accepted before; 60 learnt")
    assert len(service.samples) == 60


def test_what_the_service_refuses_otherwise(refused, service):
    service.troubles = ["", "full"]
    said = refused("live", "send", "digits", "--limit", 100)
    assert "64 of 100" in said


# a service that is away


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while somebody sleeps."""
    time = SimpleNamespace(now=0.0, monotonic=lambda: time.now)
    time.sleep = lambda seconds: setattr(time, "now", time.now + seconds)
    monkeypatch.setattr("iblurry.live.client.time", time)
    return time


def test_it_waits_for_a_service_that_is_being_started(call, service, pets, clock, monkeypatch):
    status = Client.status

    def later(client):
        if clock.now < 30:
            raise ServiceError("No answer.")
        return status(client)

    monkeypatch.setattr(Client, "status", later)
    said = call("live", "send", "pets")
    assert said.code == 0
    assert "300 s" in said.err
    assert len(service.samples) == 4
    clock.now = 0
    assert call("live", "ask", pets / "cat/1.png").err == "iblurry: No answer.\n"  # a question waits for nobody


def test_a_service_that_never_comes(call, pets, clock):
    said = call("live", "send", "pets", "--url", "http://127.0.0.1:1")
    assert said.code == 2
    told, end = said.err.splitlines()
    assert "300 s" in told
    assert re.search(r"Connection refused.* 29\d s", end)


def test_a_service_that_goes_away_for_good_while_it_learns(call, service, pets, clock, monkeypatch):
    service.learnt, status = 0, Client.status

    def lost(client):
        if clock.now > 1000:  # it may learn as slowly as it likes
            raise ServiceError("No answer.")
        return status(client)

    monkeypatch.setattr(Client, "status", lost)
    monkeypatch.setattr("iblurry.live.client.POLL_SECONDS", 5)
    said = call("live", "send", "pets")
    assert (said.code, said.out) == (2, "")
    assert re.search(r"29\d s.* 4 of 4 samples are accepted; they will be learnt", said.err)
    assert 1290 < clock.now < 1310
