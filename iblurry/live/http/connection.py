"""One client's connection: time limits for sending and reading, size limits for heads and refused bodies."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Callable

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from iblurry.live.http.metrics import ServiceMetrics
from iblurry.live.http.responses import refusal_response
from iblurry.live.quota import Limits, Refusal

HEAD = 32 * 1024  # bytes of a request's address and headers
PIPELINED = 8  # requests sent before the answer to the first
GRACE = 5.0  # seconds for the guard to refuse a body that is late, before the connection is closed
LEFTOVER = 64 * 2**20  # bytes read of a refused body: a client that sends all of it first still gets its answer


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's protocol with the limits it leaves to a reverse proxy; a subclass sets `limits` and `metrics`.

    A client has `limits.seconds` to send a request's head, as many for its body, as many to read what is written to
    it, and as many to send its next request. If there are too many connections, an idle one is closed.

    uvicorn has no public hooks for any of these, so this overrides methods of a class that it does not document:
    pyproject.toml caps its version, and tests/live/test_live_connection.py lists what is relied upon.
    """

    limits: Limits
    metrics: ServiceMetrics

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}  # "receive" the rest of a request, "write", "close"
        self._in_head, self._head, self._fed, self._left_over = False, 0, 0, 0  # the latter three are bytes
        self._refusal: Refusal | None = None
        self._start("receive", self._on_receive_timeout)
        if len(self.connections) > self.limits.connections and not self._close_idle():
            self._refuse(Refusal(503, "too_many_connections", "Too many clients; try again soon.", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for name in list(self._timers):
            self._cancel(name)

    @property
    def is_idle(self) -> bool:
        """All requests are answered, and none is being received."""
        return self.cycle is not None and self.cycle.response_complete and "receive" not in self._timers

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if "receive" not in self._timers:
            self._start("receive", self._on_receive_timeout)
        was_in_head = self._in_head
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # to another protocol: declined
        except httptools.HttpParserError:
            self._refuse(self._refusal or Refusal(400, "bad_request", "This is not valid HTTP/1.1; correct it."))
            return
        if self._in_head and was_in_head:  # the parser keeps what it has of a header until it is complete
            self._fed += len(data)
            if self._fed > HEAD:
                self._refuse(_head_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head, self._fed, self._left_over = True, 0, 0, 0

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        if self._in_head:  # trailers are ignored: uvicorn would add them to the headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if len(self.pipeline) >= PIPELINED:
            self._refusal = Refusal(429, "too_many", "Wait for answers before you ask on.", retry_after=1)
            raise self._refusal
        self._start("receive", self._on_receive_timeout, GRACE)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle.response_complete:
            self._left_over += len(body)
            if self._left_over > LEFTOVER:
                self.transport.abort()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._cancel("receive")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._start("close", self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("write", self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel("write")

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._start("close", self.transport.abort)

    def _start(self, name: str, then: Callable[[], None], grace: float = 0.0) -> None:
        self._cancel(name)
        self._timers[name] = self.loop.call_later(self.limits.seconds + grace, then)

    def _cancel(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _on_receive_timeout(self) -> None:
        self._cancel("receive")
        if self.cycle is None or self._in_head or (self.cycle.response_complete and not self.cycle.more_body):
            seconds = self.limits.seconds
            self._refuse(Refusal(408, "too_slow", f"No request came within {seconds:g} seconds; ask again."))
        elif self.cycle.more_body:
            self.transport.abort()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer without the application, which has not seen the request or will see it end."""
        if self.transport.is_closing():
            return
        self.metrics.record_request("", refusal.status, 0.0)
        if self.cycle is not None and not self.cycle.response_complete:
            if not self.cycle.more_body:  # the request before is complete: it is answered, and nothing else is read
                self.cycle.keep_alive = False
                self.flow.pause_reading()
                return
            if self.cycle.response_started or self.pipeline:
                self.transport.abort()  # the refusal would look like a part of another answer
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(_format(refusal))
        self.transport.close()
        self._start("close", self.transport.abort)

    def _count_head(self, size: int) -> None:
        self._head += size
        if self._head > HEAD:
            self._refusal = _head_too_large()
            raise self._refusal

    def _close_idle(self) -> bool:
        for other in self.connections:
            if isinstance(other, GuardedConnection) and other is not self and other.is_idle:
                other.transport.close()
                return True
        return False


def _head_too_large() -> Refusal:
    return Refusal(431, "head_too_large", f"Address and headers may have {HEAD} bytes; send less.")


def _format(refusal: Refusal) -> bytes:
    response = refusal_response(refusal)
    lines = [f"HTTP/1.1 {refusal.status} {http.HTTPStatus(refusal.status).phrase}".encode()]
    lines += [name + b": " + value for name, value in response.raw_headers if name != b"connection"]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(response.body)])
