"""Who may ask, how much and how long; and that nothing makes the guard itself stumble."""

from __future__ import annotations

import asyncio
import json
from functools import cache

import pytest

from iblurry.live.http import guard
from iblurry.live.http.app import create_app
from iblurry.live.http.guard import BODIES, GuardMiddleware
from iblurry.live.http.metrics import ServiceMetrics
from iblurry.live.quota import Limits
from tests.live.toy import Toy

DARK = bytes(48)
RAW = {"Content-Type": "application/octet-stream"}
TOKEN = "sesame-0123456789"
CLOSED = [
    "/v1/status",
    "/v1/classes",
    "/v1/history",
    "/v1/confusion",
    "/v1/memory",
    "/v1/metrics",
    "/v1/model",
    "/openapi.json",
    "/nothing",
    "/v1/events",
]
OPEN = ["/healthz", "/readyz", "/", "/docs", "/assets/main.js"]


@cache
def plain(token=None):
    """An application of a service nobody looks at."""
    return create_app(Toy(), token=token)


def limited(toy, limits):
    toy.limits = limits
    return create_app(toy)


def ask(app, *, method="GET", path="/v1/status", headers=(), query=b"", messages=(), wait=False):
    """One request by hand: header bytes as they are, the body in pieces; status, headers and body."""
    sent = []

    async def go():
        queue = list(messages) or [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive():
            if queue:
                return queue.pop(0)
            if wait:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"}
        scope |= {"path": path, "raw_path": path.encode(), "query_string": query, "root_path": ""}
        scope |= {"headers": list(headers), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000)}
        await app(scope, receive, send)

    asyncio.run(go())
    if not sent:
        return None
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(body) if body else None


@pytest.mark.parametrize("path", CLOSED)
def test_without_the_token_nothing_is_told(path):
    right = f"Bearer {TOKEN}".encode()
    for values in (
        *([], [b""], [b"Bearer"], [b"Bearer "], [b"Bearer wrong"], [f"Basic {TOKEN}".encode()], [TOKEN.encode()]),
        *([right[:-1]], [right + b"x"], [b"Bearer " + b"x" * 10_000], [b"Bearer\t" + TOKEN.encode()]),
        *([b"Bearer \xff\xfe"], [b"\xff"], ["Bearer sésame".encode()], [right, right]),
    ):
        status, headers, body = ask(plain(TOKEN), path=path, headers=[(b"authorization", value) for value in values])
        assert (status, headers[b"www-authenticate"], body["error"]) == (401, b"Bearer", "wrong_token"), values


def test_without_the_token_nothing_is_learnt(call, toy):
    for query in ("?label=a", f"?label=a&token={TOKEN}"):
        assert call("POST", f"/v1/learn{query}", token=TOKEN, content=DARK, headers=RAW).status_code == 401
    assert not toy.samples
    with_it = {**RAW, "Authorization": f"Bearer {TOKEN}"}
    assert call("POST", "/v1/learn?label=a", token=TOKEN, content=DARK, headers=with_it).status_code == 202


def test_a_wrong_token_is_refused_late_and_logged(monkeypatch, caplog):
    """A missing one, as a page's first question has it, is not; nor does the right one wait."""
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    monkeypatch.setattr(guard.asyncio, "sleep", sleep)
    for value, is_late in ((b"Bearer wrong", True), (b"", False), (f"Bearer {TOKEN}".encode(), False)):
        waited.clear()
        ask(plain(TOKEN), headers=[(b"authorization", value)] if value else [])
        assert waited == [guard.FAILURE_SECONDS] * is_late
    assert [record.getMessage() for record in caplog.records] == ["127.0.0.1 sent a wrong token."]


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN} "])
def test_the_token(call, given):
    assert call("GET", "/v1/status", token=TOKEN, headers={"Authorization": given}).status_code == 200


@pytest.mark.parametrize("path", OPEN)
def test_pages_and_health_need_no_token(call, path):
    assert call("GET", path, token=TOKEN).status_code == 200


@pytest.mark.parametrize(
    "path", ["/assets/../v1/status", "/assets/%2e%2e/v1/status", "/docs/", "/healthz/", "//", "/V1/status"]
)
def test_no_way_around(path):
    status, _, body = ask(plain(TOKEN), path=path)
    assert status in (401, 404)
    assert set(body) == {"error", "message"}


@pytest.mark.parametrize(
    "base", ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000", "http://127.9.9.9"]
)
def test_this_machine_is_heard(call, base):
    assert call("GET", "/v1/status", base=base).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:8000",
            "10.0.0.1",
            "0.0.0.0",
        ),
        *("", "[::2]", "localhost@evil.example", "127.0.0.1:evil", "2130706433", "\xff", "localhost:80:80", "[::1"),
    ],
)
def test_dns_rebinding(host):
    """A page of evil.example, whose name leads to 127.0.0.1 now, sends its own name."""
    status, _, body = ask(plain(), headers=[(b"host", host.encode("latin-1"))])
    assert (status, body["error"]) == (403, "wrong_host")
    assert ask(plain(), path="/", headers=[(b"host", host.encode("latin-1"))])[0] == 403


def test_no_host_or_two():
    assert ask(plain())[0] == 400
    assert ask(plain(), headers=[(b"host", b"localhost"), (b"host", b"evil.example")])[0] == 400


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "https://127.0.0.1:8000", "", "\xff"]
)
def test_other_sites_are_not_heard(call, origin):
    headers = [(b"host", b"127.0.0.1:8000"), (b"origin", origin.encode("latin-1"))]
    status, _, body = ask(plain(), method="POST", path="/v1/learn", headers=headers)
    assert (status, body["error"]) == (403, "wrong_origin")
    assert call("GET", "/v1/status", headers={"Origin": "http://127.0.0.1:8000"}).status_code == 200


def test_with_a_token_other_hosts_may_ask(call):
    headers = {"Authorization": f"Bearer {TOKEN}", "Origin": "https://lab.example"}
    assert call("GET", "/v1/status", token=TOKEN, base="http://camera.example", headers=headers).status_code == 200


def body_of(*pieces):
    last = len(pieces) - 1
    return [{"type": "http.request", "body": piece, "more_body": place < last} for place, piece in enumerate(pieces)]


HOST = (b"host", b"localhost")
LEARN = {"method": "POST", "path": "/v1/learn", "query": b"label=a"}
KIND = (b"content-type", b"application/octet-stream")


def test_a_body_that_says_it_is_too_large_is_not_received(toy):
    app = limited(toy, Limits(body=100))
    for length in (b"101", b"9" * 30):
        status, _, body = ask(
            app, **LEARN, headers=[HOST, KIND, (b"content-length", length)], messages=[{"type": "http.disconnect"}]
        )
        assert (status, body["error"]) == (413, "too_large")
    for length in (b"-1", b"x", b"", b"\xff"):  # the server refuses those; they must not hurt here
        assert ask(app, **LEARN, headers=[HOST, KIND, (b"content-length", length)], messages=body_of(DARK))[0] == 202


def test_a_body_that_does_not_say_so_is_counted(toy):
    app = limited(toy, Limits(body=100))
    endless = body_of(*[bytes(30)] * 1000)
    status, _, body = ask(app, **LEARN, headers=[HOST, KIND], messages=endless)
    assert (status, body["error"]) == (413, "too_large")
    status, *_ = ask(app, **LEARN, headers=[HOST, KIND], messages=body_of(DARK[:20], DARK[20:]))
    assert status == 202
    assert app_guard(app).held_bytes == 0


def app_guard(app):
    layer = app.middleware_stack
    while not isinstance(layer, GuardMiddleware):
        layer = layer.app
    return layer


def test_all_bodies_together_have_a_bound(toy):
    app = limited(toy, Limits(body=100))
    ask(app, path="/healthz", headers=[HOST])
    app_guard(app).held_bytes = BODIES * 100 - 10
    status, headers, body = ask(app, **LEARN, headers=[HOST, KIND], messages=body_of(DARK))
    assert (status, body["error"], headers[b"retry-after"]) == (429, "busy", b"1")
    assert app_guard(app).held_bytes == BODIES * 100 - 10


def test_a_client_that_leaves_is_not_answered(toy, caplog):
    app = create_app(toy)
    assert (
        ask(app, **LEARN, headers=[HOST, KIND], messages=[*body_of(DARK, b"")[:1], {"type": "http.disconnect"}]) is None
    )
    assert not toy.samples
    assert not caplog.records


@pytest.mark.parametrize("query", [b"label=%ff", b"%80", b"label=\xff", b"label=a&x=%C3%28"])
def test_addresses_that_are_no_text(query):
    status, _, body = ask(plain(), method="POST", path="/v1/learn", query=query, headers=[HOST, KIND])
    assert (status, body["error"]) == (400, "bad_address")


def test_odd_headers_do_no_harm():
    odd = [
        (b"content-type", b"\xff\xfe"),
        (b"idempotency-key", b"\xff"),
        (b"x", b"\x00"),
        (b"", b""),
        (b"cookie", b"=;="),
    ]
    assert ask(plain(), headers=[HOST, *odd])[0] == 200
    status, _, body = ask(plain(), **LEARN, headers=[HOST, *odd], messages=body_of(DARK))
    assert (status, body["error"]) == (422, "bad_key")
    assert ask(plain(), **LEARN, headers=[HOST, odd[0]], messages=body_of(DARK))[0] == 415


def test_half_an_answer_is_not_made_to_look_whole():
    async def broken(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("in the middle")

    guard = GuardMiddleware(broken, token=None, limits=Limits(), metrics=ServiceMetrics(Toy()))
    with pytest.raises(RuntimeError, match="in the middle"):
        ask(guard, headers=[HOST])
