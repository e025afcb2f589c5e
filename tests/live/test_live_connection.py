"""Clients on a real socket: slow, broken, silent and too many of them."""

from __future__ import annotations

import json
import socket
import time

import pytest

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
