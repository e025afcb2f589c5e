"""The middleware before every endpoint: token or loopback, size and time of a body; every refusal is JSON."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import time
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iblurry.live.http.metrics import ServiceMetrics
from iblurry.live.http.responses import refusal_response
from iblurry.live.quota import Limits, Refusal

WITHOUT_TOKEN = ("/", "/docs", "/healthz", "/readyz")  # pages without data, and health checks
ASSETS = "/assets/"
BODIES = 16  # so many of the largest bodies may be received at the same time
LOGGER = logging.getLogger(__name__)


class GuardMiddleware:
    """ASGI middleware that refuses requests by strangers, and bodies that are too large or too slow.

    A page of another site can make a browser send requests here, from its own origin or (DNS rebinding) by a name that
    it has made resolve to this machine. The first is seen in `Origin`, the second in `Host`.

    Parameters
    ----------
    app : ASGIApp
        The application behind it.
    token : str or None
        What requests must carry; without one only requests to a loopback address are answered.
    limits : Limits
        Of bytes and seconds.
    metrics : ServiceMetrics
        Told of every request.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, limits: Limits, metrics: ServiceMetrics) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.token = token.encode() if token is not None else None
        self.held_bytes = 0  # of bodies that are being received or read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        reply = _Reply(send, scope["path"], self.metrics)
        body = _Body(self, receive)
        try:
            self._check(scope)
            await self.app(scope, body, reply)
        except ClientDisconnect:
            LOGGER.debug("A client went away before its request was complete.")
        except Exception as error:
            if reply.started:
                raise  # the server closes the connection: half an answer must not look like a whole one
            refusal = error if isinstance(error, Refusal) else _internal_error(scope, error)
            await refusal_response(refusal)(scope, receive, reply)
        finally:
            self.held_bytes -= body.size

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        if self.token is None:
            _check_loopback(headers.get(b"host", []), headers.get(b"origin", []))
        elif scope["path"] not in WITHOUT_TOKEN and not scope["path"].startswith(ASSETS):
            self._check_token(headers.get(b"authorization", []))
        try:
            unquote_to_bytes(scope["query_string"]).decode()
        except UnicodeDecodeError as error:
            raise Refusal(
                400, "bad_address", "What follows the ? in the address is not UTF-8; encode it so."
            ) from error
        length = headers.get(b"content-length", [b"0"])[0]
        if length.isdigit() and int(length[:20]) > self.limits.body:
            raise self.too_large()

    def _check_token(self, given: Sequence[bytes]) -> None:
        scheme, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        known = hmac.compare_digest(token.strip(), self.token or b"")  # in constant time
        if scheme.lower() != b"bearer" or not known:
            raise Refusal(
                401, "wrong_token", "The token is missing or wrong; send it in the header Authorization: Bearer TOKEN."
            )

    def too_large(self) -> Refusal:
        return Refusal(413, "too_large", f"A request may have {self.limits.body} bytes; send less at once.")


def _internal_error(scope: Scope, error: Exception) -> Refusal:
    LOGGER.error("%s %r failed.", scope["method"], scope["path"], exc_info=error)
    return Refusal(500, "mistake", "The service made a mistake, which is in its log now; try again, or report it.")


def _check_loopback(hosts: Sequence[bytes], origins: Sequence[bytes]) -> None:
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

    def __init__(self, guard: GuardMiddleware, receive: Receive) -> None:
        self.guard, self.receive = guard, receive
        self.size, self.complete = 0, False
        self.deadline: float | None = None

    async def __call__(self) -> Message:
        if self.complete:
            return await self.receive()  # reports that the client has gone
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
        self.guard.held_bytes += arrived
        self.complete = not message.get("more_body", False)
        if self.size > limits.body:
            raise self.guard.too_large()
        if self.guard.held_bytes > BODIES * limits.body:
            raise Refusal(429, "busy", "Too many large requests at the same time; try again soon.", retry_after=1)
        return message


class _Reply:
    """Records when an answer starts, and with which status."""

    def __init__(self, send: Send, path: str, metrics: ServiceMetrics) -> None:
        self.send, self.path, self.metrics = send, path, metrics
        self.started, self.start = False, time.perf_counter()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.metrics.record_request(self.path, message["status"], time.perf_counter() - self.start)
        await self.send(message)


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
    host, bracket, rest = authority.partition("]")
    if host.startswith("[") and bracket and _is_port(rest):
        return host[1:]
    host, _, port = authority.partition(":")
    return host if _is_port(f":{port}") or not port else authority


def _is_port(text: str) -> bool:
    return text == "" or (text.startswith(":") and text[1:].isascii() and text[1:].isdigit())
