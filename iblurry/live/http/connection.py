"""One client's connection: time limits for sending and reading, size limits for heads and refused bodies."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from iblurry.live.http.guard import PROBES, is_loopback
from iblurry.live.http.metrics import ServiceMetrics
from iblurry.live.http.responses import refusal_response
from iblurry.live.quota import Limits, Refusal

HEAD = 32 * 1024  # bytes of a request's address and headers
PIPELINED = 8  # requests sent before the answer to the first
GRACE = 5.0  # seconds for the guard to refuse a body that is late, before the connection is closed
PROBING = 16  # connections beyond the limit that may send a head, to ask whether the service is well
CHUNKS = 2**14  # of one body: each takes some microseconds, in which nobody else is answered
LEFTOVER = 64 * 2**20  # bytes read of a refused body: a client that sends all of it first still gets its answer


class LingeringTransport:
    """A transport whose `close` sends what is written and then discards what the client still sends.

    Closed with bytes unread, a socket resets the connection, and a client that sends a whole body before it reads would
    never see the refusal. It lingers only where `is_receiving` says that more may come; a second `close` is for good.
    """

    def __init__(self, transport: asyncio.Transport, is_receiving: Callable[[], bool]) -> None:
        self._transport, self._is_receiving = transport, is_receiving
        self.is_lingering = False
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Sent when the event loop comes round: an answer's head and body are one packet, which wakes a client once."""
        if not self._written:
            asyncio.get_running_loop().call_soon(self.flush)
        self._written.append(data)

    def flush(self) -> None:
        if self._written:
            data, self._written = b"".join(self._written), []
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        if self.is_lingering or not self._is_receiving():
            self._transport.close()
        else:
            self.is_lingering = True
            self._transport.resume_reading()
            self._transport.write_eof()

    def is_closing(self) -> bool:
        return self.is_lingering or self._transport.is_closing()

    @property
    def is_gone(self) -> bool:
        """Closed for good."""
        return self._transport.is_closing()


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's protocol with the limits it leaves to a reverse proxy; a subclass sets `limits` and `metrics`.

    A client has `limits.head_seconds` to send a request's head, `limits.seconds` for its body, as many to read what is
    written to it, and as many to send its next request. If there are too many connections, of all or of one address,
    an idle one is closed; if none is idle, the new one is surplus: it may only ask for the service's health.

    uvicorn has no public hooks for any of these, so this overrides methods of a class that it does not document:
    pyproject.toml caps its version, and tests/live/test_live_connection.py lists what is relied upon.
    """

    limits: Limits
    metrics: ServiceMetrics

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        self._unread = False  # more of a request may come
        self._line = LingeringTransport(transport, lambda: self._unread)
        super().connection_made(cast(asyncio.Transport, self._line))
        self._made_at, self._is_surplus = self.loop.time(), False
        self._timers: dict[str, asyncio.TimerHandle] = {}  # "receive" the rest of a request, "write", "close"
        self._in_head, self._head, self._fed, self._left_over = False, 0, 0, 0  # the latter three are bytes
        self._chunks = 0
        self._refusal: Refusal | None = None
        self._start_head()
        self._take_place()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for name in list(self._timers):
            self._cancel(name)

    @property
    def is_idle(self) -> bool:
        """All requests are answered, and none is being received."""
        if self._line.is_lingering:
            return True
        return self.cycle is not None and self.cycle.response_complete and "receive" not in self._timers

    def data_received(self, data: bytes) -> None:
        if self._line.is_lingering:
            self._discard(len(data))
            return
        self._unset_keepalive_if_required()
        if "receive" not in self._timers:
            self._start_head()
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
        self._unread = True
        self._chunks = 0
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
            self._refusal = Refusal(429, "too_many", "Wait for responses before you send more requests.", retry_after=1)
            raise self._refusal
        if self._is_surplus and self.url.partition(b"?")[0].decode("latin-1") not in PROBES:
            message = "There are too many connections; close some, or try again soon."
            self._refusal = Refusal(503, "too_many_connections", message, retry_after=1)
            raise self._refusal
        self._start("receive", self._on_receive_timeout, self.limits.seconds + GRACE)
        super().on_headers_complete()
        if self._is_surplus:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle.response_complete:
            self._discard(len(body))

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > CHUNKS:
            self._refusal = Refusal(413, "too_many_chunks", f"A body has {CHUNKS} chunks at most; send larger ones.")
            raise self._refusal

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._unread = False
        self._cancel("receive")

    def on_response_complete(self) -> None:
        self._line.flush()  # before anything that the client need not wait for
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

    def _start(self, name: str, then: Callable[[], None], seconds: float | None = None) -> None:
        self._cancel(name)
        self._timers[name] = self.loop.call_later(self.limits.seconds if seconds is None else seconds, then)

    def _start_head(self) -> None:
        self._start("receive", self._on_receive_timeout, self._head_seconds)

    @property
    def _head_seconds(self) -> float:
        return min(self.limits.head_seconds, self.limits.seconds)

    def _cancel(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _on_receive_timeout(self) -> None:
        self._cancel("receive")
        if self.cycle is None or self._in_head or (self.cycle.response_complete and not self.cycle.more_body):
            seconds = self._head_seconds
            self._refuse(Refusal(408, "too_slow", f"No request came within {seconds:g} seconds; send it again."))
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
        self._unread = True
        self.transport.close()
        self._start("close", self.transport.abort)

    def _count_head(self, size: int) -> None:
        self._head += size
        if self._head > HEAD:
            self._refusal = _head_too_large()
            raise self._refusal

    def _discard(self, size: int) -> None:
        """So many bytes came of a request that is answered already."""
        self._left_over += size
        if self._left_over > LEFTOVER:
            self.transport.abort()

    def _take_place(self) -> None:
        """In the place of an idle connection if need be; of those beyond the limits, the oldest has to go."""
        others = [
            other
            for other in self.connections
            if isinstance(other, GuardedConnection) and other is not self and not other._line.is_gone
        ]
        host = self.client[0] if self.client else ""
        same = [] if is_loopback(host) else [other for other in others if other.client and other.client[0] == host]
        for crowd, limit in ((same, self.limits.per_address), (others, self.limits.connections)):
            if len(crowd) >= limit:
                idle = next((other for other in crowd if other.is_idle), None)
                if idle is None:
                    self._is_surplus = True
                else:
                    idle.transport.close()
        surplus = [other for other in others if other._is_surplus]
        if self._is_surplus and len(surplus) >= PROBING:
            min(surplus, key=lambda other: other._made_at).transport.abort()


def _head_too_large() -> Refusal:
    return Refusal(431, "head_too_large", f"URL and headers may have at most {HEAD} bytes; send less.")


def _format(refusal: Refusal) -> bytes:
    response = refusal_response(refusal)
    lines = [f"HTTP/1.1 {refusal.status} {http.HTTPStatus(refusal.status).phrase}".encode()]
    lines += [name + b": " + value for name, value in response.raw_headers if name != b"connection"]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(response.body)])
