"""Clients on a real socket: slow, huge, broken, silent and too many of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from iblurry.live.quota import Limits
from tests.live.toy import Toy

pytest.importorskip("fastapi", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
pytest.importorskip("uvicorn", reason="the service's HTTP side is an extra: pip install 'iblurry[live]'")
import uvicorn

from iblurry.live.http import connection

CAP = (0, 55)  # as in pyproject.toml

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


def test_what_is_relied_upon_of_uvicorn():
    """uvicorn documents none of this, so pyproject.toml caps its version.

    To raise the cap: read the changes of uvicorn/protocols/http/httptools_impl.py since the version before, see that
    the methods below are still called at the same moments and that no timer or limit of its own has come to collide
    with ours, then run tests/live (also the slow ones) and `python -m benchmarks.live.fuzz --cases 10000`.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

    ours = vars(connection.GuardedConnection)
    overridden = {
        name for name in ours if name.startswith(("on_", "connection_", "data_", "pause_", "resume_", "time"))
    }
    overridden.remove("on_chunk_header")  # httptools calls and documents it, and uvicorn has none
    assert not hasattr(HttpToolsProtocol, "on_chunk_header")
    assert overridden == {
        *("connection_made", "connection_lost", "data_received", "on_message_begin", "on_url", "on_header"),
        *("on_headers_complete", "on_body", "on_message_complete", "on_response_complete", "pause_writing"),
        *("resume_writing", "timeout_keep_alive_handler"),
    }
    assert overridden <= set(dir(HttpToolsProtocol))
    made = HttpToolsProtocol.__init__.__code__.co_names
    assert {"parser", "cycle", "pipeline", "flow", "transport", "connections", "loop"} <= {
        *made,
        *HttpToolsProtocol.__annotations__,
    }
    used = RequestResponseCycle.__init__.__code__.co_names
    assert {"disconnected", "message_event", "response_started", "response_complete", "more_body", "keep_alive"} <= set(
        used
    )
    assert callable(HttpToolsProtocol._unset_keepalive_if_required)
    installed = tuple(map(int, uvicorn.__version__.split(".")[:2]))
    assert (0, 29) <= installed < CAP


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


SLOW = {
    "nothing": [b""],
    "a method": [b"G", b"E", b"T"],
    "empty lines": [b"\r\n", b"\r\n"],
    "headers": [GET, b"X: 1\r\n", b"Y: "],
    "a body": [POST + b"Content-Length: 48\r\n\r\n", b"x", b"y"],
    "a chunk": [POST + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nab"],
}


def test_slow_clients_are_sent_away_and_hold_up_nobody(port, talk):
    start = time.monotonic()
    with ThreadPoolExecutor(len(SLOW)) as pool:
        answers = [pool.submit(talk, port, *pieces, pause=0.1) for pieces in SLOW.values()]
        assert parts(talk(port, GET + LAST))[0] == 200
        for name, answer in zip(SLOW, answers, strict=True):
            assert refusal(answer.result()) == (408, "too_slow"), name
    assert 0.9 < time.monotonic() - start < 8


def hung_up_on(line, piece, pause=0.0, patience=9.0):
    """Sends a piece again and again until the other side has had enough; the seconds it took."""
    start = time.monotonic()
    while time.monotonic() - start < patience:
        try:
            line.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return time.monotonic() - start
        time.sleep(pause)
    raise AssertionError("it may go on")


@pytest.mark.slow
def test_a_client_that_drips_has_no_more_time(port):
    """A byte now and then does not start the clock again."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(GET + b"X: ")
        assert 0.5 < hung_up_on(line, b"x", pause=0.05) < 8


def test_a_silent_connection_is_closed(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(GET + b"\r\n")
        assert heard(line) == 200
        start = time.monotonic()
        assert line.recv(65536) == b""
        assert time.monotonic() - start < 8


@pytest.mark.slow
def test_a_body_nobody_reads_must_come_in_time_too(port, monkeypatch):
    monkeypatch.setattr(connection, "GRACE", 0.2)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(GET + b"Content-Length: 90000\r\n\r\nx")
        assert heard(line) == 200
        assert 0.5 < hung_up_on(line, b"x", pause=0.1) < 8


@pytest.mark.parametrize(
    "pieces",
    [
        [GET + b"X: " + b"x" * 40_000 + b"\r\n\r\n"],
        [GET + b"".join(b"X%d: y\r\n" % i for i in range(10_000)) + b"\r\n"],
        [b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n"],
        [GET + b"X: ", *[b"x" * 100_000] * 20],
        [b"GET /", *[b"x" * 100_000] * 20],
        [POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + b"X: y\r\n" * 10_000 + b"\r\n"],
    ],
    ids=["one", "many", "address", "endless", "endless address", "after the body"],
)
def test_huge_headers(port, talk, pieces):
    assert refusal(talk(port, *pieces)) == (431, "head_too_large")


@pytest.mark.parametrize(
    "raw",
    [
        *(b"\0\1\2\3\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"HELO\r\n\r\n", b"GET\r\n\r\n"),
        *(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            GET + b"X Y: 1\r\n\r\n",
            GET + b"X\0Y: 1\r\n\r\n",
        ),
        *(GET + b"Content-Length: x\r\n\r\n", GET + b"Content-Length: -1\r\n\r\n", GET + b": x\r\n\r\n"),
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 48\r\nContent-Length: 49\r\n\r\n" + bytes(48),
        POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        *(b"CONNECT evil.example:80 HTTP/1.1\r\n" + HOST + b"\r\n", b"GET http:// HTTP/1.1\r\n" + HOST + b"\r\n"),
        b"GET /\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
    ],
)
def test_what_is_no_http(port, talk, raw):
    assert refusal(talk(port, raw)) == (400, "bad_request")


def test_addresses_are_taken_as_they_are(port, talk):
    for path in (
        b"/assets/../../../etc/passwd",
        b"/assets/%2e%2e%2fpage",
        b"/v1/../v1/status",
        b"/%ff",
        b"/%00",
    ):
        assert refusal(talk(port, b"GET " + path + b" HTTP/1.1\r\n" + HOST + LAST)) == (404, "not_found")


def test_what_comes_after_the_body_is_no_header(port, talk):
    """It may be there before the request is looked at, and must not speak for it."""
    chunks = b"30\r\n" + bytes(48) + b"\r\n0\r\n"
    raw = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks
    assert parts(talk(port, raw + b"Origin: http://evil.example\r\nHost: evil.example\r\n\r\n"))[0] == 202


def test_refusals_without_the_application_are_counted(port, talk):
    assert refusal(talk(port, b"HELO\r\n\r\n")) == (400, "bad_request")
    told = talk(port, b"GET /v1/metrics HTTP/1.1\r\n" + HOST + LAST).decode()
    (count,) = re.findall(r'^iblurry_request_seconds_count\{endpoint="other",status="400"\} (.+)$', told, re.MULTILINE)
    assert float(count) >= 1


def test_another_protocol_is_not_taken(port, talk):
    upgrade = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert parts(talk(port, GET + upgrade))[0] == 200
    assert refusal(talk(port, b"GET /ws HTTP/1.1\r\n" + HOST + upgrade)) == (404, "not_found")


def test_an_old_client_without_a_host(port, talk):
    assert refusal(talk(port, b"GET /v1/status HTTP/1.0\r\n\r\n")) == (400, "bad_host")


def test_dns_rebinding_over_a_socket(port, talk):
    assert refusal(talk(port, b"GET / HTTP/1.1\r\nHost: evil.example\r\n" + LAST)) == (403, "wrong_host")


def test_a_body_too_large_hears_the_no_even_if_it_sends_first(port, talk):
    big = bytes(3_000_000)
    assert refusal(talk(port, POST + b"Connection: close\r\nContent-Length: 3000000\r\n\r\n", big)) == (
        413,
        "too_large",
    )


@pytest.mark.parametrize("given", [b"Content-Length: 3000000\r\n", b"Content-Length: 90000\r\n" + b"X: x\r\n" * 9000])
def test_a_refusal_is_not_cut_off_by_the_body_behind_it(port, given):
    """A client that sends everything before it reads, and asks to close, is not reset while it sends."""
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
            line.sendall(POST + b"Connection: close\r\n" + given + b"\r\n")
            for _ in range(30):
                line.sendall(bytes(100_000))
                time.sleep(0.001)
            received = b"".join(iter(lambda: line.recv(65536), b""))
        assert refusal(received) in {(413, "too_large"), (431, "head_too_large")}


def test_chunks_without_end(port, talk):
    chunk = b"8000\r\n" + bytes(0x8000) + b"\r\n"
    raw = talk(port, POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n", *[chunk] * 40)
    assert refusal(raw) == (413, "too_large")


def test_what_is_written_at_once_is_sent_at_once():
    """A head and its body wake a client once; nothing is left behind when the connection is closed."""

    async def write():
        sent, inner = [], SimpleNamespace(close=lambda: sent.append("closed"))
        inner.write = sent.append
        line = connection.LingeringTransport(inner, lambda: False)
        line.write(b"head")
        line.write(b"body")
        await asyncio.sleep(0)
        line.write(b"last")
        line.close()
        await asyncio.sleep(0)
        return sent

    assert asyncio.run(write()) == [b"headbody", b"last", "closed"]


def test_small_chunks_have_a_bound(port, talk):
    """Each takes time of the event loop: millions would keep everybody else waiting."""
    head, chunks = b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"
    few, many = chunks * (connection.CHUNKS - 1) + b"0\r\n\r\n", chunks * (connection.CHUNKS + 1)
    assert refusal(talk(port, POST + b"Connection: close\r\n" + head + few)) == (422, "wrong_size")
    assert refusal(talk(port, POST + head + many)) == (413, "too_many_chunks")
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:  # also of a request that is answered
        line.sendall(GET + head)
        assert heard(line) == 200
        assert hung_up_on(line, many) < 3


def test_what_is_left_over_has_a_bound(port, monkeypatch):
    monkeypatch.setattr(connection, "LEFTOVER", 500_000)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(POST + b"Content-Length: 900000000\r\n\r\n")
        assert hung_up_on(line, bytes(100_000)) < 9


def test_several_requests_at_once_are_answered_in_order(port, talk):
    paths = [b"/v1/status", b"/healthz", b"/nothing"]
    raw = talk(port, b"".join(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n" for path in paths) + GET + LAST)
    assert [int(piece[:3]) for piece in raw.split(b"HTTP/1.1 ")[1:]] == [200, 200, 404, 200]


def test_not_too_many_at_once(port, talk):
    raw = talk(port, (GET + b"\r\n") * 1000)
    assert 1 < raw.count(b"HTTP/1.1 200") < 20
    assert raw.endswith(b"}")


def test_garbage_after_a_request_does_not_take_its_answer(port, talk):
    for garbage in (b"\0\1\2\r\n\r\n", b"GET /", b"X" * 100_000):
        status, _, body = parts(talk(port, GET + b"\r\n" + garbage))
        assert status == 200
        assert json.loads(body.partition(b"HTTP/1.1")[0])["method"] == "clib"


@pytest.mark.parametrize("asked", [True, False])
def test_there_is_room_for_so_many(running, talk, asked):
    """Those that wait for nothing make way; those that have not asked yet hold their place for a while."""
    port, _ = running(Toy(limits=Limits(seconds=3, connections=4)))
    lines = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(4)]
    for line in lines if asked else ():
        line.sendall(GET + b"\r\n")
        assert heard(line) == 200
    raw = talk(port, GET + LAST)
    if asked:
        assert parts(raw)[0] == 200
    else:
        assert refusal(raw) == (503, "too_many_connections")
        assert parts(raw)[1]["retry-after"] == "1"
    for line in lines:
        line.close()


def test_health_probes_are_answered_when_all_places_are_taken(running, talk):
    """By half-open connections, also more of them than there are places; anything else is refused."""
    port, _ = running(Toy(limits=Limits(seconds=9, connections=4)))
    lines = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(60)]
    for path in (b"/healthz", b"/readyz?full"):
        status, headers, _ = parts(talk(port, b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n"))
        assert (status, headers["connection"]) == (200, "close")
    for path in (b"/v1/status", b"/healthz/"):
        raw = talk(port, b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        assert refusal(raw) == (503, "too_many_connections")
    for line in lines:
        line.close()


def test_one_address_does_not_get_all_places(running, talk, monkeypatch):
    monkeypatch.setattr(connection, "is_loopback", lambda host: host == "127.0.0.1")
    port, _ = running(Toy(limits=Limits(seconds=9, per_address=3)))

    def others(count):
        return [socket.create_connection(("127.0.0.1", port), 5, ("127.0.0.2", 0)) for _ in range(count)]

    lines = others(4)
    lines[-1].sendall(GET + b"\r\n")
    assert heard(lines[-1]) == 503
    assert parts(talk(port, GET + LAST))[0] == 200
    lines[0].sendall(GET + b"\r\n")
    assert heard(lines[0]) == 200
    lines += others(1)  # in the place of one that is answered
    lines[-1].sendall(GET + b"\r\n")
    assert heard(lines[-1]) == 200
    for line in lines:
        line.close()


@pytest.mark.slow
def test_a_head_has_less_time_than_a_body(running, talk):
    port, _ = running(Toy(limits=Limits(seconds=9, head_seconds=0.5)))
    for pieces in ([], [GET]):
        start = time.monotonic()
        assert refusal(talk(port, *pieces, timeout=8)) == (408, "too_slow")
        assert time.monotonic() - start < 5
    slow = talk(port, POST + b"Content-Length: 48\r\nConnection: close\r\n\r\n", bytes(24), bytes(24), pause=0.8)
    assert parts(slow)[0] == 202


@pytest.mark.slow
def test_a_client_that_does_not_read_is_let_go(running):
    toy = Toy(limits=Limits(seconds=1))
    toy.history = lambda: [{"at": "x" * 24_000_000}]
    port, _ = running(toy)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(b"GET /v1/history HTTP/1.1\r\n" + HOST + b"\r\n")
        received = len(line.recv(1))
        time.sleep(2)
        with contextlib.suppress(ConnectionResetError):
            while data := line.recv(1 << 20):
                received += len(data)
        assert received < 24_000_000
