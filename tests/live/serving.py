"""Serves a service in a thread, by the program's own server; a test may make its answers, or some of them, go wrong."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iblurry.live.http.answers import refusal_response
from iblurry.live.http.app import create_app
from iblurry.live.http.server import listen, run
from iblurry.live.quota import Refusal


class Serving:
    """Answers on a port of its own from `start` to `stop`, and again there from the next `start`.

    `troubles` come one for each request to its path: a Refusal, "drop" (the connection breaks before the service has
    heard of it), "commit" (it breaks within the answer), or "proxy" (502 in place of the answer); "" is none.
    """

    def __init__(self, service: Any, *, token: str | None = None, prefix: str = "") -> None:
        self.service, self.token, self.prefix, self.port = service, token, prefix, 0
        self.troubles: list[tuple[str, Refusal | str]] = []
        self.paths: list[str] = []  # as they were asked for
        self.keys: list[str] = []  # of requests that have one
        self.clients: set[Any] = set()  # addresses of their connections
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None

    @property
    def url(self) -> str:
        """Its address; it is started if it was not."""
        if self.port == 0:
            self.start()
        return f"http://127.0.0.1:{self.port}{self.prefix}"

    def start(self) -> Self:
        self.listener, up = listen("127.0.0.1", self.port, token=self.token), threading.Event()
        self.port = self.listener.getsockname()[1]

        async def main() -> None:
            self.loop, self.stopping = asyncio.get_running_loop(), asyncio.Event()
            await run(self.service, self.listener, token=self.token, on_ready=lambda _: up.set(), stop=self.stopping)

        def live() -> None:
            try:
                asyncio.run(main())
            except BaseException as error:
                self.error = error
            finally:
                up.set()

        self.thread = threading.Thread(target=live, daemon=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("iblurry.live.http.server.create_app", self._application)
            self.thread.start()
            assert up.wait(60)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reset(self) -> Self:
        """Forgets all that was asked of it; its service, a toy, too."""
        self.troubles.clear()
        self.paths.clear()
        self.keys.clear()
        self.clients.clear()
        self.service.reset()
        return self

    def teaching(self, *troubles: Refusal | str) -> None:
        """The troubles of the next requests to learn, and of no others."""
        self.troubles = [("/v1/learn", one) for one in troubles]

    def stop(self) -> None:
        if self.thread is None:
            return
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join(60)
        self.listener.close()
        assert not self.thread.is_alive(), "the server does not stop"
        assert self.error is None, self.error
        self.thread = None

    def _application(self, service: Any, *, token: str | None) -> ASGIApp:
        app = create_app(service, token=token)

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            scope = scope | {"path": scope["path"].removeprefix(self.prefix)}
            self.paths.append(scope["path"])
            self.clients.add(scope["client"])
            self.keys += Request(scope).headers.getlist("idempotency-key")
            trouble = self._trouble(scope["path"])
            if trouble in ("commit", "proxy"):
                await app(scope, receive, _nowhere)
            elif trouble != "":
                await Request(scope, receive).body()
            if isinstance(trouble, Refusal):
                await refusal_response(trouble)(scope, receive, send)
            elif trouble == "proxy":
                await PlainTextResponse("Bad gateway", 502)(scope, receive, send)
            elif trouble == "":
                await app(scope, receive, send)
            else:
                if trouble == "commit":
                    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"9")]})
                    await send({"type": "http.response.body", "body": b"{", "more_body": True})
                    await asyncio.sleep(0.01)  # it is on its way
                send.__self__.transport.abort()  # type: ignore[attr-defined]  # uvicorn's request
                await asyncio.sleep(0.01)  # it notices

        return respond

    def _trouble(self, path: str) -> Refusal | str:
        for row, (meant, _) in enumerate(self.troubles):
            if meant == path:
                return self.troubles.pop(row)[1]
        return ""


async def _nowhere(_: Message) -> None:
    """An answer that gets lost."""
