"""Serves a live learner over HTTP until SIGTERM or SIGINT, and then closes it in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import math
import re
import signal
import socket
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI

from iblurry.errors import InputError
from iblurry.live.http.app import create_app
from iblurry.live.http.bodies import KEY_PATTERN
from iblurry.live.http.guard import is_loopback
from iblurry.live.quota import Limits

if TYPE_CHECKING:
    from iblurry.live.service import Service

LEAST_TOKEN = 16  # characters, unless only this machine can ask
BACKLOG = 2048  # connections that wait to be accepted, uvicorn's default
SHUTDOWN_SECONDS = 10.0  # for requests that are being answered when the service is told to stop


def serve(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    on_ready: Callable[[str], None] = print,
) -> None:
    """Start the service, answer requests until SIGTERM or SIGINT, and close it.

    Parameters
    ----------
    service : Service
        Not started yet.
    host : str
        Address to listen at; any but loopback needs a token.
    port : int
        0 takes one that is free.
    token : str, optional
        What requests must carry as `Authorization: Bearer TOKEN`.
    on_ready : callable
        Called with the URL once requests are answered.
    """
    warnings.filterwarnings("ignore", module="PIL")  # on clients' pictures: they are refused, not logged

    def started(url: str) -> None:
        gc.collect()
        gc.freeze()  # else each full collection walks over all of torch, and every client waits 0.1 s for it
        on_ready(url)

    try:
        with contextlib.closing(listen(host, port, token=token)) as listener:
            asyncio.run(run(service, listener, token=token, on_ready=started, stop=asyncio.Event()))
    finally:
        gc.unfreeze()


async def run(
    service: Service,
    listener: socket.socket,
    *,
    token: str | None,
    on_ready: Callable[[str], None],
    stop: asyncio.Event,
) -> None:
    """The same on a listening socket, in a running event loop, until `stop` is set."""
    if threading.current_thread() is threading.main_thread():  # no other may handle signals
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)  # beside uvicorn's handlers
    await service.start()
    app = create_app(service, token=token)  # now that it has the settings its folder began with
    server = uvicorn.Server(_config(app, service.limits))
    try:
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        on_ready(url_of(listener))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        server.should_exit = True  # accept no more connections, answer what was received
        service.end_events()
        await serving
    finally:
        await service.close()


def listen(host: str, port: int, *, token: str | None) -> socket.socket:
    """A socket that listens at this address; clients that connect before the service is up wait for it."""
    if not 0 <= port <= 65535:
        raise InputError(f"There is no port {port}; give one from 1 to 65535, or 0 for any that is free.")
    if token is not None and not re.fullmatch(KEY_PATTERN, token):
        raise InputError("A token is made of visible ASCII characters, without spaces; choose another.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InputError(f"The host {host!r} is not known; give an address of this machine.") from error
    family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    if token is None and not is_loopback(str(address[0])):
        raise InputError(f"{host} can be reached from other machines; give a token, or serve 127.0.0.1 only.")
    if token is not None and len(token) < LEAST_TOKEN and not is_loopback(str(address[0])):
        raise InputError(
            f"The token has {len(token)} characters, but other machines can reach {host}; give {LEAST_TOKEN} or more, "
            "as from: openssl rand -hex 32."
        )
    try:
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        listener = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
        # Its connections inherit this. asyncio sets it only where a socket was made for TCP by name, and without it a
        # response of two segments waits some 40 ms for the client's delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        why = {
            errno.EADDRINUSE: "it is in use; stop what uses it, or give another (0 takes any that is free)",
            errno.EACCES: "you may not use it; give one above 1023",
        }.get(error.errno or 0, f"{error.strerror}; give an address of this machine")
        raise InputError(f"Port {port} of {host} cannot be used: {why}.") from error


def url_of(listener: socket.socket) -> str:
    """The URL at which this machine reaches it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(app: FastAPI, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        interface="asgi3",
        log_config=None,
        log_level="error",  # not a line for each stranger that speaks no HTTP
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=limits.connections,
        timeout_keep_alive=max(1, math.ceil(limits.seconds)),
        timeout_graceful_shutdown=math.ceil(SHUTDOWN_SECONDS),
    )
