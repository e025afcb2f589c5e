"""A server on a real socket: where it may listen, clients of every kind, events, and an end in order."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import threading
import time

import pytest

from iblurry.errors import InputError, ServiceError
from iblurry.live.client import Client
from iblurry.live.http.server import listen, serve, url_of
from iblurry.live.quota import Limits
from tests.live.toy import Toy

HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET /v1/status HTTP/1.1\r\n" + HOST
LAST = b"Connection: close\r\n\r\n"
POST = b"POST /v1/learn?label=a HTTP/1.1\r\n" + HOST + b"Content-Type: application/octet-stream\r\n"


def parts(raw):
    """Status, headers and body of an answer."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    return int(first.split(" ")[1]), dict(line.lower().split(": ", 1) for line in lines), body


def refusal(raw):
    status, headers, body = parts(raw)
    assert headers["content-type"] == "application/json"
    told = json.loads(body)
    assert set(told) == {"error", "message"}
    return status, told["error"]


def heard(line):
    """The status of one answer, which is then read to its end."""
    received = b""
    while b"}" not in received:
        received += line.recv(65536)
    return parts(received)[0]


@pytest.fixture(scope="module")
def port(running):
    return running(Toy(limits=Limits(seconds=1, body=100_000)))[0]


def test_an_ordinary_request(port, talk):
    status, headers, body = parts(talk(port, GET + LAST))
    assert status == 200
    assert json.loads(body)["method"] == "clib"
    assert "server" not in headers
    assert "date" in headers
    assert headers["connection"] == "close"


def test_one_connection_for_several_requests(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        for _ in range(3):
            line.sendall(POST + b"Content-Length: 48\r\n\r\n" + bytes(48))
            assert heard(line) == 202


def test_chunks(port, talk):
    raw = (
        POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n18\r\n" + bytes(24) + b"\r\n18\r\n" + bytes(24)
    )
    assert parts(talk(port, raw + b"\r\n0\r\n\r\n"))[0] == 202


@pytest.mark.parametrize(
    "pieces",
    [
        [POST + b"Content-Length: 48\r\n\r\n", b"x", b"y"],
        [POST + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nab"],
    ],
    ids=["a body", "a chunk"],
)
def test_slow_bodies_are_refused(port, talk, pieces):
    assert refusal(talk(port, *pieces, pause=0.1)) == (408, "too_slow")


@pytest.mark.parametrize("raw", [b"HELO\r\n\r\n", GET + b"X Y: 1\r\n\r\n", GET + b"Content-Length: x\r\n\r\n"])
def test_what_is_no_http(port, talk, raw):
    assert parts(talk(port, raw))[0] == 400


def test_there_is_room_for_so_many(running, talk):
    port, _ = running(Toy(limits=Limits(seconds=3, connections=4)))
    lines = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(4)]
    assert b" 503 " in talk(port, GET + LAST).split(b"\r\n")[0]
    for line in lines:
        line.close()


def test_a_silent_connection_is_closed(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(GET + b"\r\n")
        assert heard(line) == 200
        start = time.monotonic()
        assert line.recv(65536) == b""
        assert time.monotonic() - start < 8


def test_addresses_are_taken_as_they_are(port, talk):
    for path in (
        b"/assets/../../../etc/passwd",
        b"/assets/%2e%2e%2fpage",
        b"/v1/../v1/status",
        b"/%ff",
        b"/%00",
    ):
        assert refusal(talk(port, b"GET " + path + b" HTTP/1.1\r\n" + HOST + LAST)) == (404, "not_found")


def test_another_protocol_is_not_taken(port, talk):
    upgrade = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert parts(talk(port, GET + upgrade))[0] == 200
    assert refusal(talk(port, b"GET /ws HTTP/1.1\r\n" + HOST + upgrade)) == (404, "not_found")


def test_a_refusal_is_not_cut_off_by_the_body_behind_it(port):
    """A client that sends everything before it reads, and asks to close, is not reset while it sends."""
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
            line.sendall(POST + b"Connection: close\r\nContent-Length: 3000000\r\n\r\n")
            for _ in range(30):
                line.sendall(bytes(100_000))
                time.sleep(0.001)
            received = b"".join(iter(lambda: line.recv(65536), b""))
        assert refusal(received) == (413, "too_large")


# listeners, and the end


def listening(port):
    line = socket.create_connection(("127.0.0.1", port), timeout=5)
    line.sendall(b"GET /v1/events HTTP/1.1\r\n" + HOST + b"\r\n")
    received = b""
    while b"event: status" not in received:
        received += line.recv(65536)
    return line


def wait(condition):
    until = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_a_listener_that_leaves_is_noticed(running):
    toy = Toy(limits=Limits(seconds=1))
    port, _ = running(toy)
    line = listening(port)
    assert len(toy.queues) == 1
    time.sleep(1.5)  # longer than a request may take: it owes nothing
    assert len(toy.queues) == 1
    line.close()
    wait(lambda: not toy.queues)


def test_the_end(running, talk):
    """Streams end, what is being answered is answered, the service is closed, nobody is let in."""
    toy = Toy()
    let_go, began = threading.Event(), threading.Event()
    learn = toy.learn

    async def slow(samples, *, key=None):
        began.set()
        await asyncio.to_thread(let_go.wait)
        assert not toy.closed
        return await learn(samples, key=key)

    toy.learn = slow
    port, stop = running(toy)
    assert toy.started
    line, answers = listening(port), []
    teacher = threading.Thread(
        target=lambda: answers.append(talk(port, POST + b"Content-Length: 48\r\nConnection: close\r\n\r\n" + bytes(48)))
    )
    teacher.start()
    assert began.wait(5)
    stopper = threading.Thread(target=stop)
    stopper.start()
    rest = b""
    while data := line.recv(65536):
        rest += data
    assert rest.endswith(b"0\r\n\r\n")  # a stream that was ended, not cut
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    let_go.set()
    for thread in (teacher, stopper):
        thread.join(10)
    assert parts(answers[0])[0] == 202
    assert len(toy.samples) == 1
    assert toy.closed
    line.close()


@pytest.mark.quick("SIGTERM")
@pytest.mark.parametrize("word", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_in_order(word):
    toy, lines, frozen = Toy(), [], []
    number = getattr(signal, word)
    before = signal.getsignal(number)

    def listen_and_signal(url):
        lines.append(listening(int(url.rpartition(":")[2])))
        for _ in range(2):  # whoever is impatient does it no harm
            os.kill(os.getpid(), number)

    def ready(url):
        frozen.append(gc.get_freeze_count())
        threading.Thread(target=listen_and_signal, args=(url,)).start()

    serve(toy, port=0, on_ready=ready)
    assert toy.closed
    assert frozen[0] > 1000 > gc.get_freeze_count()  # full collections are short while it serves, and whole after it
    assert signal.getsignal(number) is before
    while lines[0].recv(65536):
        continue
    lines[0].close()


def free():
    with listen("127.0.0.1", 0, token=None) as listener:
        return listener.getsockname()[1]


def test_who_comes_before_it_is_up_is_answered_then():
    port, sent, answers = free(), threading.Event(), []

    def ask():
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
                line.sendall(b"GET /readyz HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")
                sent.set()
                answers.append(b"".join(iter(lambda: line.recv(65536), b"")))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    class Late(Toy):
        async def start(self):
            early.start()
            assert await asyncio.to_thread(sent.wait, 5)
            assert not answers
            await super().start()

    early = threading.Thread(target=ask)
    serve(Late(), port=port, on_ready=lambda url: None)
    early.join(5)
    assert parts(answers[0])[0] == 200


def test_a_start_that_fails_hangs_up_on_who_waits_and_frees_the_port():
    port, lines = free(), []

    class Failing(Toy):
        async def start(self):
            lines.append(socket.create_connection(("127.0.0.1", port), timeout=5))
            raise InputError("It cannot begin.")

    with pytest.raises(InputError, match="cannot begin"):
        serve(Failing(), port=port, on_ready=lambda url: pytest.fail("it is not ready"))
    with pytest.raises(ConnectionResetError):
        lines[0].recv(1)
    lines[0].close()
    listen("127.0.0.1", port, token=None).close()


def test_answers_do_not_wait_for_delayed_acknowledgements(running):
    """Linux delays them by 40 ms and more where a response is sent in two segments without TCP_NODELAY."""
    port, _ = running(Toy())
    with Client(f"http://127.0.0.1:{port}") as client:
        seconds = []
        for _ in range(20):
            began = time.perf_counter()
            client.status()
            seconds.append(time.perf_counter() - began)
    assert min(seconds[5:]) < 0.03  # a connection acknowledges its first packets at once


def test_health_by_head(running, talk):
    toy = Toy()
    port, _ = running(toy)

    def ask(method, path):
        line = method + b" " + path + b" HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n"
        return parts(talk(port, line))

    for path in (b"/healthz", b"/readyz"):
        status, headers, body = ask(b"HEAD", path)
        assert (status, body) == (200, b"")
        assert headers["content-length"] == ask(b"GET", path)[1]["content-length"] == "11"
    toy.reason = "It is being recovered; wait."
    status, headers, body = ask(b"HEAD", b"/readyz")
    assert (status, headers["retry-after"], body) == (503, "1", b"")
    assert ask(b"HEAD", b"/healthz")[0] == 200


def test_ports_and_hosts():
    with listen("127.0.0.1", 0, token=None) as first:
        assert url_of(first) == f"http://127.0.0.1:{first.getsockname()[1]}"
        with pytest.raises(InputError, match="is in use"):
            listen("127.0.0.1", first.getsockname()[1], token=None)
    with listen("localhost", 0, token=None) as local:
        assert url_of(local).startswith("http://127.0.0.1:")
    with pytest.raises(InputError, match=r"0\.0\.0\.0"):
        listen("0.0.0.0", 0, token=None)
    with pytest.raises(InputError, match=r"15 characters, but .*; give 16 or more"):
        listen("0.0.0.0", 0, token="s" * 15)
    with listen("127.0.0.1", 0, token="s"):
        pass
    with listen("0.0.0.0", 0, token="s" * 16) as everywhere:
        assert url_of(everywhere).startswith("http://127.0.0.1:")
    with pytest.raises(InputError, match="65536"):
        listen("127.0.0.1", 65536, token=None)
    for host in ("no.such.host.invalid", "x" * 300, "\ud800", ""):
        with pytest.raises(InputError, match="is not known"):
            listen(host, 0, token="sesame")
    with pytest.raises(InputError, match=r"192\.0\.2\.1"):
        listen("192.0.2.1", 0, token="s" * 16)


def test_the_other_loopback():
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        other = listen("::1", 0, token=None)
    except InputError:
        pytest.skip("this machine has no ::1")
    with other:
        assert url_of(other) == f"http://[::1]:{other.getsockname()[1]}"


@pytest.mark.parametrize("token", ["", "two words", "sésame", "a\n"])
def test_tokens_that_no_header_can_carry(token):
    with pytest.raises(InputError, match="visible ASCII"):
        listen("127.0.0.1", 0, token=token)


# events


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
        wait(lambda: toy.listeners == 1)
        again = client.events()
        assert next(again)[0] == "status"
        for stream in (second, again):
            stream.close()
        wait(lambda: toy.listeners == 0)
