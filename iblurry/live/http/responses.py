"""Responses: JSON, refusals, the files of the service's own pages, and streams of events."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from iblurry.live.quota import Refusal

if TYPE_CHECKING:
    from iblurry.live.exporter import ModelFile
    from iblurry.live.service import Service

SECURITY_HEADERS = {  # a response is data: not to be sniffed, cached, framed or read by another site
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
RAW = "application/octet-stream"
PIECE = 2**18  # bytes of a file sent at once
EVENT_TYPE = "text/event-stream"
END = "end"  # the service's last event
KEEP_ALIVE = 15.0  # seconds without an event after which a comment is sent
SAME_ORIGIN = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class JsonResponse(Response):
    """Data as JSON; NaN and infinity, such as the loss of a diverged run, become null."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, headers={**SECURITY_HEADERS, **(headers or {})})

    def render(self, content: Any) -> bytes:
        return to_bytes(content)


def refusal_response(refusal: Refusal, headers: Mapping[str, str] | None = None) -> JsonResponse:
    """`{"error": "code", "message": "A sentence."}`, with Retry-After in whole seconds where it is known.

    `index` and `field` are there where one entry of the request is at fault.
    """
    more = dict(headers or {})
    if refusal.retry_after is not None:
        more["Retry-After"] = str(max(1, math.ceil(refusal.retry_after)))
    if refusal.status == 401:
        more["WWW-Authenticate"] = "Bearer"
    if refusal.status == 408:
        more["Connection"] = "close"
    where = {"index": refusal.index, "field": refusal.field}
    found = {name: value for name, value in where.items() if value is not None}
    return JsonResponse({"error": refusal.code, "message": refusal.message} | found, refusal.status, more)


def to_bytes(data: Any) -> bytes:
    """One line of JSON.

    >>> to_bytes({"loss": float("nan"), "label": "π"}).decode()
    '{"loss":null,"label":"π"}'
    """
    return to_json(data, inf_nan_mode="null")


def file_response(request: Request, body: bytes, content_type: str, policy: str = SAME_ORIGIN) -> Response:
    """A file of a page under a Content-Security-Policy, or 304 where the browser has it already."""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-cache", "Content-Security-Policy": policy, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers={**headers, "Content-Type": content_type})


@cache
def docs_page() -> tuple[bytes, str, str]:
    """The page of the API in one file: content, type, and a policy that allows its own script and style by hash."""
    folder = files("iblurry.live.http") / "docs"
    page = (folder / "page.html").read_text(encoding="utf-8")
    for name in ("style.css", "page.js"):
        page = page.replace(f"/*{name}*/", (folder / name).read_text(encoding="utf-8"))
    policy = SAME_ORIGIN
    for kind, inside in re.findall(r"<(script|style)>(.*?)</\1>", page, flags=re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode("ascii")
        policy += f"; {kind}-src 'sha256-{digest}'"
    return page.encode(), "text/html; charset=utf-8", policy


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
            message = f"{self.limit} listeners are connected already; close one, or try again later."
            raise Refusal(429, "too_many_listeners", message, retry_after=10)
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class EventStream(Response):
    """A response that ends when the client leaves or the service stops."""

    media_type = EVENT_TYPE

    def __init__(self, service: Service, listeners: Listeners, *, keep_alive: float = KEEP_ALIVE) -> None:
        self.service, self.listeners, self.keep_alive = service, listeners, keep_alive
        super().__init__(headers={**SECURITY_HEADERS, "Content-Type": EVENT_TYPE, "X-Accel-Buffering": "no"})

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


def model_tag(operation: int | None, kind: str) -> str:
    """The ETag of a model: the last operation that is in it, and its format."""
    return f'"{operation}-{kind}"'


class ModelResponse(StreamingResponse):
    """An exported model, sent piece by piece from its file."""

    media_type = RAW

    def __init__(self, model: ModelFile, kind: str) -> None:
        self._file = model.file
        headers = {
            "ETag": model_tag(model.operation, kind),
            "X-Samples": str(model.samples),
            "X-Accepted": str(model.accepted),
            "Content-Length": str(model.file.seek(0, os.SEEK_END)),
            "Content-Disposition": f'attachment; filename="model.{kind}"',
        }
        model.file.seek(0)
        pieces = iter(lambda: model.file.read(PIECE), b"")
        super().__init__(pieces, headers={**SECURITY_HEADERS, **headers}, media_type=RAW)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def format_event(name: str, data: dict[str, Any]) -> bytes:
    """One event.

    >>> format_event("class", {"label": "cat"})
    b'event: class\\ndata: {"label":"cat"}\\n\\n'
    """
    return b"event: %s\ndata: %s\n\n" % (name.encode(), to_bytes(data))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
