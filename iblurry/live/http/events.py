"""Server-sent events: what happens, told to whoever listens, for as long as they do.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from iblurry.live.http.answers import SAFE, dumps
from iblurry.live.refusal import Refusal

if TYPE_CHECKING:
    from iblurry.live.service import Service

KIND = "text/event-stream"
END = "end"  # the service's last event
QUIET = 15.0  # seconds after which a comment shows that the line is still there


class Listeners:
    """All who listen; there may be so many, and they are sent home when the service stops."""

    def __init__(self, most: int) -> None:
        self.most, self.count = most, 0
        self.stopping = asyncio.Event()

    @contextmanager
    def seat(self) -> Iterator[None]:
        """A place among them."""
        if self.stopping.is_set():
            raise Refusal(503, "stopping", "The service is stopping; come back when it runs again.", retry_after=5)
        if self.count >= self.most:
            raise Refusal(
                429, "too_many_listeners", f"{self.most} listen already; close one, or try again later.", retry_after=10
            )
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class Events(Response):
    """An answer that goes on until the client leaves or the service stops."""

    media_type = KIND

    def __init__(self, service: Service, listeners: Listeners, *, quiet: float = QUIET) -> None:
        self.service, self.listeners, self.quiet = service, listeners, quiet
        self.status_code, self.background, self.body = 200, None, b""
        self.init_headers({**SAFE, "Content-Type": KIND, "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.listeners.seat(), self.service.subscribe() as queue:
            headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            telling = asyncio.create_task(self._tell(queue, send))
            ends = [
                telling,
                asyncio.create_task(_leaving(receive)),
                asyncio.create_task(self.listeners.stopping.wait()),
            ]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.wait(ends)
        if not telling.cancelled():
            telling.result()  # it may have met with an error
        await send({"type": "http.response.body", "body": b""})

    async def _tell(self, queue: asyncio.Queue[tuple[str, dict[str, Any]]], send: Send) -> None:
        while True:
            try:
                async with asyncio.timeout(self.quiet):
                    name, data = await queue.get()
            except TimeoutError:
                line = b": nothing new\n\n"
            else:
                if name == END:
                    return
                line = event(name, data)
            await send({"type": "http.response.body", "body": line, "more_body": True})


def event(name: str, data: dict[str, Any]) -> bytes:
    """One event.

    >>> event("class", {"label": "cat"})
    b'event: class\\ndata: {"label":"cat"}\\n\\n'
    """
    return f"event: {name}\ndata: {dumps(data)}\n\n".encode()


async def _leaving(receive: Receive) -> None:
    """Returns when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        continue
