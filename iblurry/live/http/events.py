"""Server-sent events: what happens, sent to every client that listens.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from iblurry.live.http.responses import SECURITY_HEADERS, dumps
from iblurry.live.quota import Refusal

if TYPE_CHECKING:
    from iblurry.live.service import Service

CONTENT_TYPE = "text/event-stream"
END = "end"  # the service's last event
KEEP_ALIVE = 15.0  # seconds without an event after which a comment is sent


class Listeners:
    """Counts the clients that listen, at most `limit`; `stopping` ends their streams."""

    def __init__(self, limit: int) -> None:
        self.limit, self.count = limit, 0
        self.stopping = asyncio.Event()

    @contextmanager
    def add(self) -> Iterator[None]:
        """One more, for as long as the context lasts."""
        if self.stopping.is_set():
            raise Refusal(503, "stopping", "The service is stopping; come back when it runs again.", retry_after=5)
        if self.count >= self.limit:
            message = f"{self.limit} listen already; close one, or try again later."
            raise Refusal(429, "too_many_listeners", message, retry_after=10)
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class EventStream(Response):
    """A response that ends when the client leaves or the service stops."""

    media_type = CONTENT_TYPE

    def __init__(self, service: Service, listeners: Listeners, *, keep_alive: float = KEEP_ALIVE) -> None:
        self.service, self.listeners, self.keep_alive = service, listeners, keep_alive
        self.status_code, self.background, self.body = 200, None, b""
        self.init_headers({**SECURITY_HEADERS, "Content-Type": CONTENT_TYPE, "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.listeners.add(), self.service.subscribe() as queue:
            headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            sending = asyncio.create_task(self._send_events(queue, send))
            ends = [
                sending,
                asyncio.create_task(_wait_for_disconnect(receive)),
                asyncio.create_task(self.listeners.stopping.wait()),
            ]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.wait(ends)
        if not sending.cancelled():
            sending.result()  # raises its error
        await send({"type": "http.response.body", "body": b""})

    async def _send_events(self, queue: asyncio.Queue[tuple[str, dict[str, Any]]], send: Send) -> None:
        while True:
            try:
                async with asyncio.timeout(self.keep_alive):
                    name, data = await queue.get()
            except TimeoutError:
                line = b": nothing new\n\n"
            else:
                if name == END:
                    return
                line = format_event(name, data)
            await send({"type": "http.response.body", "body": line, "more_body": True})


def format_event(name: str, data: dict[str, Any]) -> bytes:
    """One event.

    >>> format_event("class", {"label": "cat"})
    b'event: class\\ndata: {"label":"cat"}\\n\\n'
    """
    return f"event: {name}\ndata: {dumps(data)}\n\n".encode()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
