"""What stands before every endpoint: who may ask, how much, how long; and that every no is JSON."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iblurry.live.http.answers import refused
from iblurry.live.http.hosts import host_of, is_loopback
from iblurry.live.http.prometheus import Requests
from iblurry.live.limits import Limits
from iblurry.live.refusal import Refusal

OPEN = ("/", "/docs", "/healthz", "/readyz")  # pages without data, and what a supervisor asks
ASSETS = "/assets/"
BODIES = 16  # as many of the largest may be on their way in at the same time
log = logging.getLogger(__name__)


class Guard:
    """An ASGI middleware; `token` is what others must know, without one only this machine itself is heard.

    A page of another site can make a browser send requests here, by its own origin or (DNS rebinding) by a name that
    it has made lead here. The first says so in `Origin`, the second in `Host`.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, limits: Limits, requests: Requests) -> None:
        self.app, self.limits, self.requests = app, limits, requests
        self.token = token.encode() if token is not None else None
        self.held = 0  # bytes of bodies that are being received or read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        reply = _Reply(send, scope["path"], self.requests)
        body = _Body(self, receive)
        try:
            self._check(scope)
            await self.app(scope, body, reply)
        except ClientDisconnect:
            log.debug("A client went away before its request was complete.")
        except Exception as error:
            if reply.begun:
                raise  # the server cuts the connection: half an answer must not look like a whole one
            no = error if isinstance(error, Refusal) else _mistake(scope, error)
            await refused(no)(scope, receive, reply)
        finally:
            self.held -= body.size

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        if self.token is None:
            _only_this_machine(headers.get(b"host", []), headers.get(b"origin", []))
        elif scope["path"] not in OPEN and not scope["path"].startswith(ASSETS):
            self._only_with_token(headers.get(b"authorization", []))
        try:
            unquote_to_bytes(scope["query_string"]).decode()
        except UnicodeDecodeError as error:
            raise Refusal(
                400, "bad_address", "What follows the ? in the address is not UTF-8; encode it so."
            ) from error
        length = headers.get(b"content-length", [b"0"])[0]
        if length.isdigit() and int(length[:20]) > self.limits.body:
            raise self.too_large()

    def _only_with_token(self, given: Sequence[bytes]) -> None:
        scheme, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        known = hmac.compare_digest(token.strip(), self.token or b"")  # takes as long for any wrong one
        if scheme.lower() != b"bearer" or not known:
            raise Refusal(
                401, "wrong_token", "The token is missing or wrong; send it in the header Authorization: Bearer TOKEN."
            )

    def too_large(self) -> Refusal:
        return Refusal(413, "too_large", f"A request may have {self.limits.body} bytes; send less at once.")


def _mistake(scope: Scope, error: Exception) -> Refusal:
    log.error("%s %r failed.", scope["method"], scope["path"], exc_info=error)
    return Refusal(500, "mistake", "The service made a mistake, which is in its log now; try again, or report it.")


def _only_this_machine(hosts: Sequence[bytes], origins: Sequence[bytes]) -> None:
    if len(hosts) != 1:
        raise Refusal(400, "bad_host", "A request has one Host header; send it.")
    authority = hosts[0].decode("latin-1")
    if not is_loopback(host_of(authority)):
        raise Refusal(
            403, "wrong_host", "Without a token this service is only for this machine; ask for 127.0.0.1 or localhost."
        )
    if any(origin.decode("latin-1").lower() != f"http://{authority}".lower() for origin in origins):
        raise Refusal(403, "wrong_origin", "Pages of other sites may not use this service; use its own page.")


class _Body:
    """Receives a request within its limits of bytes and seconds."""

    def __init__(self, guard: Guard, receive: Receive) -> None:
        self.guard, self.receive = guard, receive
        self.size, self.complete = 0, False
        self.deadline: float | None = None

    async def __call__(self) -> Message:
        if self.complete:
            return await self.receive()  # the client is there until it says that it is gone
        limits, loop = self.guard.limits, asyncio.get_running_loop()
        if self.deadline is None:
            self.deadline = loop.time() + limits.seconds
        try:
            async with asyncio.timeout_at(self.deadline):
                message = await self.receive()
        except TimeoutError as error:
            raise Refusal(
                408, "too_slow", f"The request took more than {limits.seconds:g} seconds to arrive; send less at once."
            ) from error
        arrived = len(message.get("body", b""))
        self.size += arrived
        self.guard.held += arrived
        self.complete = not message.get("more_body", False)
        if self.size > limits.body:
            raise self.guard.too_large()
        if self.guard.held > BODIES * limits.body:
            raise Refusal(429, "busy", "Too many large requests at the same time; try again soon.", retry_after=1)
        return message


class _Reply:
    """Notes when an answer begins, and with which status."""

    def __init__(self, send: Send, path: str, requests: Requests) -> None:
        self.send, self.path, self.requests = send, path, requests
        self.begun, self.start = False, time.perf_counter()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self.requests.note(self.path, message["status"], time.perf_counter() - self.start)
        await self.send(message)
