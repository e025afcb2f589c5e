"""Ways to reach a service: a toy's HTTP side, its page in a browser, and time and places for its client."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
import threading
from functools import cache
from importlib.util import find_spec

import pytest
import torch

EXTRA = ("fastapi", "uvicorn", "prometheus_client", "httpx")  # pip install 'iblurry[live]'
collect_ignore_glob = [] if all(map(find_spec, EXTRA)) else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def _quick_processes():
    """Learner processes are forked from one that has imported torch; as spawned ones they take seconds to start.

    Those of `iblurry live serve` are spawned, which the slow tests do.
    """
    from iblurry.live import process

    multiprocessing.set_forkserver_preload(["iblurry.live.learning", "iblurry.live.predictor", "torch._dynamo"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "START_METHOD", "forkserver")
        yield


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch):
    """Wrong tokens are refused at once."""
    monkeypatch.setattr("iblurry.live.http.guard.FAILURE_SECONDS", 0.0)


@pytest.fixture
def toy():
    from tests.live.toy import Toy

    return Toy()


@pytest.fixture
def call(toy):
    """Asks the application of the toy service, without a socket: call("GET", "/v1/status")."""
    import httpx

    from iblurry.live.http.app import create_app
    from iblurry.live.quota import Limits

    @cache  # an application takes a tenth of a second to be put together
    def app_of(token, limits):
        toy.limits = limits or Limits()
        return create_app(toy, token=token)

    def ask(method, path, *, token=None, limits=None, base="http://127.0.0.1:8000", **more):
        async def answer():
            transport = httpx.ASGITransport(app_of(token, limits))
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                return await client.request(method, path, **more)

        return asyncio.run(answer())

    return ask


@pytest.fixture(scope="module")
def running():
    """Serves a service in a thread until the tests of a file are over; gives (port, stop)."""
    from tests.live.serving import Serving

    started = []

    def begin(service, *, token=None):
        started.append(Serving(service, token=token).start())
        return started[-1].port, started[-1].stop

    yield begin
    for serving in started:
        serving.stop()


@pytest.fixture
def talk():
    """Sends bytes to a port, in one piece or several with pauses, and reads until the other side hangs up."""

    def send(port, *pieces, pause=0.0, timeout=5.0):
        with socket.create_connection(("127.0.0.1", port), timeout=timeout) as line:
            for piece in pieces:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    line.sendall(piece)
                if pause:
                    threading.Event().wait(pause)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while data := line.recv(65536):
                    received += data
            return received

    return send


@pytest.fixture
def site(toy):
    """The toy service, to be served with its page."""
    from tests.live.serving import Serving

    toy.events_kept, toy.shares, toy.points, toy.confused = 0, (0.72, 0.19, 0.06, 0.02, 0.01), [], []
    serving = Serving(toy)
    yield serving
    serving.stop()


@pytest.fixture
def visit(browser):
    """Opens a service's page; in the end nothing was complained about, and nobody else was asked."""
    opened = []

    def open_page(url, width=1280, height=900, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        context.set_default_timeout(15000)
        tab = context.new_page()
        troubles, asked = [], []
        tab.on("console", lambda message: troubles.append(message.text))
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        opened.append((context, tab, troubles, asked, url))
        tab.goto(url)
        return tab

    yield open_page
    for context, tab, troubles, asked, home in opened:
        assert tab.evaluate("window.hacked") is None
        assert [text for text in troubles if not text.startswith("Failed to load resource")] == []
        assert [url for url in asked if not url.startswith((home, "data:image/", "blob:" + home))] == []
        context.close()


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while the client sleeps; how long it slept each time."""

    class Clock:
        pauses: list[float]

        def __init__(self):
            self.pauses = []

        def sleep(self, seconds):
            self.pauses.append(seconds)

        def monotonic(self):
            return sum(self.pauses)

    clock = Clock()
    monkeypatch.setattr("iblurry.live.client.time", clock)
    return clock


@pytest.fixture
def nobody():
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def one_thread():
    """The learner's own number, so that bits can be compared with those of a service."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
