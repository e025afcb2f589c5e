"""Server-sent events: told as they happen, to so many and no more, until someone leaves."""

from __future__ import annotations

import threading
import time

import pytest

from iblurry import Client
from iblurry.errors import ServiceError
from iblurry.live.quota import Limits
from tests.live.toy import Toy


def until(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_status_comes_at_once_and_then_what_happens(running):
    toy = Toy()
    port, stop = running(toy)
    with Client(f"http://127.0.0.1:{port}") as client:
        events = client.events()
        name, data = next(events)
        assert (name, data["method"]) == ("status", "clib")
        toy.tell("class", {"label": "a\nb π"})
        client.status()  # the event loop comes round
        assert next(events) == ("class", {"label": "a\nb π"})
        stopper = threading.Thread(target=stop)
        stopper.start()
        assert list(events) == []  # the stream is ended, not cut
        stopper.join()
    assert not toy.queues


def test_silence_is_broken_by_comments(running, monkeypatch):
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.05)
    port, _ = running(Toy())
    with Client(f"http://127.0.0.1:{port}") as client, client._stream("/v1/events", 5) as response:
        assert any(line.startswith(":") for line in response.iter_lines())


def test_so_many_and_no_more(running):
    toy = Toy(limits=Limits(listeners=2))
    port, _ = running(toy)
    with Client(f"http://127.0.0.1:{port}") as client:
        first, second, third = (client.events() for _ in range(3))
        assert next(first)[0] == next(second)[0] == "status"
        with pytest.raises(ServiceError) as no:
            next(third)
        assert (no.value.status, no.value.code) == (429, "too_many_listeners")
        assert toy.listeners == 2
        first.close()
        until(lambda: toy.listeners == 1)
        again = client.events()
        assert next(again)[0] == "status"
        for stream in (second, again):
            stream.close()
        until(lambda: toy.listeners == 0)
