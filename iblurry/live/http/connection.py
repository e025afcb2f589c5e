"""One client's connection: what it owes us must come in time, and its headers and leftovers have bounds."""

from __future__ import annotations

import asyncio
import http

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from iblurry.live.http.answers import refused
from iblurry.live.http.prometheus import Requests
from iblurry.live.limits import Limits
from iblurry.live.refusal import Refusal

HEAD = 32 * 1024  # bytes of a request's address and headers
AHEAD = 8  # requests sent before the answer to the first is there
GRACE = 5.0  # seconds in which the guard says that a body is late, before the connection is cut
LEFTOVER = 64 * 2**20  # bytes read of a body that was refused: whoever sends it all before listening hears the no


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with the bounds it leaves to a proxy; a subclass sets `limits` and `requests`.

    A client has `seconds` to send a request's head, and as many for its body; as many to take what is written to it;
    as many to ask again before it is hung up on. If there is no room for one more, a silent one makes way.
    """

    limits: Limits
    requests: Requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._due: asyncio.TimerHandle | None = None  # for the rest of a request
        self._taking: asyncio.TimerHandle | None = None  # for the client to read on
        self._ending: asyncio.TimerHandle | None = None  # for it to read the last of it
        self._in_head, self._head, self._fed, self._left_over = False, 0, 0, 0
        self._why: Refusal | None = None
        self._expect(self.limits.seconds)
        if len(self.connections) > self.limits.connections and not self._make_room():
            self._refuse(Refusal(503, "too_many_connections", "Too many clients; try again soon.", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._due, self._taking, self._ending):
            if timer is not None:
                timer.cancel()

    @property
    def silent(self) -> bool:
        """Everything it asked for is answered, and it asks for nothing."""
        return self.cycle is not None and self.cycle.response_complete and self._due is None

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._due is None:
            self._expect(self.limits.seconds)
        began = self._in_head
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # an offer of another protocol, which is not taken
        except httptools.HttpParserError:
            self._refuse(self._why or Refusal(400, "bad_request", "This is not HTTP/1.1 as it should be; correct it."))
            return
        if self._in_head and began:  # the parser keeps what it has of a header until it is complete
            self._fed += len(data)
            if self._fed > HEAD:
                self._refuse(_head_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head, self._fed, self._left_over = True, 0, 0, 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if self._in_head:  # those that come after the body are not heard: they would count as having come before it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if len(self.pipeline) >= AHEAD:
            self._why = Refusal(429, "too_many", "Wait for answers before you ask on.", retry_after=1)
            raise self._why
        self._expect(self.limits.seconds + GRACE)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle.response_complete:
            self._left_over += len(body)
            if self._left_over > LEFTOVER:
                self.transport.abort()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._end()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end()

    def _expect(self, seconds: float) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._due = None
        if self.cycle is None or self._in_head or (self.cycle.response_complete and not self.cycle.more_body):
            seconds = self.limits.seconds
            self._refuse(Refusal(408, "too_slow", f"No request came within {seconds:g} seconds; ask again."))
        elif self.cycle.more_body:
            self.transport.abort()

    def _refuse(self, no: Refusal) -> None:
        """Says no without asking the application, which has not seen the request or will see it end."""
        if self.transport.is_closing():
            return
        self.requests.note("", no.status, 0.0)
        if self.cycle is not None and not self.cycle.response_complete:
            if not self.cycle.more_body:  # what came before is whole: it is answered, and nothing else is heard
                self.cycle.keep_alive = False
                self.flow.pause_reading()
                return
            if self.cycle.response_started or self.pipeline:
                self.transport.abort()  # the no would look like a part of another answer
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(_spelled(no))
        self.transport.close()
        self._end()

    def _end(self) -> None:
        self._ending = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > HEAD:
            self._why = _head_too_large()
            raise self._why

    def _make_room(self) -> bool:
        for other in self.connections:
            if isinstance(other, Connection) and other is not self and other.silent:
                other.transport.close()
                return True
        return False


def _head_too_large() -> Refusal:
    return Refusal(431, "head_too_large", f"Address and headers may have {HEAD} bytes; send less.")


def _spelled(no: Refusal) -> bytes:
    answer = refused(no)
    lines = [f"HTTP/1.1 {no.status} {http.HTTPStatus(no.status).phrase}".encode()]
    lines += [name + b": " + value for name, value in answer.raw_headers if name != b"connection"]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(answer.body)])
