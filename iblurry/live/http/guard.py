"""The middleware before every endpoint: token or loopback, size and time of a body; refusals are JSON."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iblurry.live.http.answers import refusal_response
from iblurry.live.http.metrics import ServiceMetrics
from iblurry.live.quota import Limits, Refusal

PROBES = ("/healthz", "/readyz")
WITHOUT_TOKEN = ("/", "/docs", *PROBES)  # pages without data, and health checks
ASSETS = "/assets/"
BODIES = 16  # so many of the largest bodies may be received at the same time
FAILURE_SECONDS = 1.0  # before a wrong token is refused
LEFTOVER = 64 * 2**20  # bytes read of a refused body: a client that sends all of it first still gets its answer
SECURITY_HEADERS = (  # a response is data: not to be sniffed, cached, framed or read by another site
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
LOGGER = logging.getLogger(__name__)


class GuardMiddleware:
    """ASGI middleware that refuses requests by strangers, and bodies that are too large or too slow.

    A page of another site can make a browser send requests here, from its own origin or (DNS rebinding) by a name that
    it has made resolve to this machine. The first is seen in `Origin`, the second in `Host`. Without a token only
    requests to a loopback address are answered.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, limits: Limits, metrics: ServiceMetrics) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.token = token.encode() if token is not None else None
        self.held_bytes = 0  # of bodies that are being received or read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, is_answered = time.perf_counter(), False
        body = _Body(self, receive)

        async def reply(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                self.metrics.record_request(scope["path"], message["status"], time.perf_counter() - started)
                given = {name for name, _ in message["headers"]}
                more = [pair for pair in SECURITY_HEADERS if pair[0] not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        async def reply_to_refused(message: Message) -> None:
            """Read what is left of the body before the answer ends, since that may close the connection."""
            if message["type"] == "http.response.body":
                await reply({**message, "more_body": True})
                await body.discard()
                message = {**message, "body": b""}
            await reply(message)

        try:
            await self._check(scope)
            if scope["method"] == "HEAD" and scope["path"] in PROBES:
                scope = {**scope, "method": "GET"}  # of load balancers; the server sends no body
            await self.app(scope, body.receive, reply)
        except ClientDisconnect:
            LOGGER.debug("A client went away before its request was complete.")
        except Exception as error:
            if is_answered:
                raise  # the server closes the connection: half an answer must not look like a whole one
            refusal = error
            if not isinstance(refusal, Refusal):
                LOGGER.error("%s %r failed.", scope["method"], scope["path"], exc_info=error)
                refusal = Refusal(
                    500, "mistake", "An internal error, now in the service's log; try again, or report it."
                )
            await refusal_response(refusal)(scope, receive, reply_to_refused)
        finally:
            self.held_bytes -= body.size

    async def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self.token is None:
            _check_loopback(headers.getlist("host"), headers.getlist("origin"))
        elif scope["path"] not in WITHOUT_TOKEN and not scope["path"].startswith(ASSETS):
            await self._check_token(headers.getlist("authorization"), (scope.get("client") or ("?", 0))[0])
        try:
            unquote_to_bytes(scope["query_string"]).decode()
        except UnicodeDecodeError as error:
            raise Refusal(400, "bad_address", "The query of the URL is not UTF-8; encode it as UTF-8.") from error
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length[:20]) > self.limits.body:
            raise self.too_large()

    async def _check_token(self, given: Sequence[str], address: str) -> None:
        """A wrong token is answered late, so that few can be tried; the right one is not kept waiting by others."""
        scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
        is_known = hmac.compare_digest(token.encode("latin-1").strip(), self.token or b"")  # in constant time
        if scheme.lower() != "bearer" or not is_known:
            if given:
                LOGGER.warning("%s sent a wrong token.", address)
                await asyncio.sleep(FAILURE_SECONDS)
            message = "The token is missing or wrong; send it in the header Authorization: Bearer TOKEN."
            raise Refusal(401, "wrong_token", message)

    def too_large(self) -> Refusal:
        return Refusal(413, "too_large", f"A request may have {self.limits.body} bytes; send less at once.")


def _check_loopback(hosts: Sequence[str], origins: Sequence[str]) -> None:
    if len(hosts) != 1:
        raise Refusal(400, "bad_host", "A request has one Host header; send it.")
    if not is_loopback(host_of(hosts[0])):
        message = "Without a token this service is only for this machine; use 127.0.0.1 or localhost."
        raise Refusal(403, "wrong_host", message)
    if any(origin.lower() != f"http://{hosts[0]}".lower() for origin in origins):
        raise Refusal(403, "wrong_origin", "Requests from other web sites are refused; use the service's page.")


class _Body:
    """Receives a request within its limits of bytes and seconds."""

    def __init__(self, guard: GuardMiddleware, receive: Receive) -> None:
        self._guard, self._receive = guard, receive
        self.size, self._is_complete = 0, False
        self._deadline: float | None = None

    async def receive(self) -> Message:
        if self._is_complete:
            return await self._receive()  # reports that the client has gone
        guard, limits = self._guard, self._guard.limits
        if self._deadline is None:
            self._deadline = self._start()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            text = f"The request took more than {limits.seconds:g} seconds to arrive; send less at once."
            raise Refusal(408, "too_slow", text) from error
        arrived = len(message.get("body", b""))
        self.size += arrived
        guard.held_bytes += arrived
        self._is_complete = not message.get("more_body", False)
        if self.size > limits.body:
            raise guard.too_large()
        if guard.held_bytes > BODIES * limits.body:
            raise Refusal(429, "busy", "Too many large requests at the same time; try again soon.", retry_after=1)
        return message

    async def discard(self) -> None:
        """Read the rest, within the limit of time; a client that sends too much is not waited for."""
        left = LEFTOVER
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._deadline or self._start()):
                while not self._is_complete and left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self._is_complete = not message.get("more_body", False)

    def _start(self) -> float:
        return asyncio.get_running_loop().time() + self._guard.limits.seconds


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "10.0.0.1", "localhost.evil.example", "")]
    [True, True, True, False, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """The host of `host:port`.

    >>> [host_of(text) for text in ("LocalHost:8000", "[::1]:8000", "[::1]", "127.0.0.1", "a@b", "x:y:z")]
    ['LocalHost', '::1', '::1', '127.0.0.1', 'a@b', 'x:y:z']
    """
    found = re.fullmatch(r"(?:\[(.+?)\]|([^:]*?))(:[0-9]*)?", authority, re.DOTALL)
    return found[1] or found[2] if found else authority
