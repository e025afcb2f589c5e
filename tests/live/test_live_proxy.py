"""The reverse proxy that is shipped: it passes requests on, and keeps slow and greedy clients from the service."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from iblurry import Client
from iblurry.errors import ServiceError
from tests.live.toy import Toy

pytestmark = pytest.mark.slow

SHIPPED = Path(__file__).parents[2] / "deploy" / "nginx.conf"
TOKEN = "sesame-0123456789"
GET = b"GET /v1/status HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n"
SLOW = ([], [b"GET"], [b"\r\n"], [GET, b"X: "], [GET[:-9]])


@pytest.fixture(scope="module")
def proxied(running, tmp_path_factory):
    """The toy's port behind nginx with the shipped file, but for names, TLS, and seconds in place of tens of them."""
    if (nginx := shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")) is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    folder, toy = tmp_path_factory.mktemp("nginx"), Toy()
    behind, _ = running(toy, token=TOKEN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = re.sub(r"\n *ssl_.*", "", SHIPPED.read_text()).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    text = re.sub(r"(_timeout [123])0s", r"\1s", text).replace("127.0.0.1:8000", f"127.0.0.1:{behind}")
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}}"
    whole = f"{main} http {{ access_log off; {temporary} {text} }}"
    (folder / "nginx.conf").write_text(whole)
    process = subprocess.Popen([nginx, "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "log"])
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.05)
    yield port, toy
    process.terminate()
    process.wait(10)


def test_a_client_learns_asks_and_listens_through_it(proxied):
    port, toy = proxied
    with Client(f"http://127.0.0.1:{port}", token=TOKEN) as client:
        images = np.zeros((3, 3, 4, 4), np.uint8)
        assert client.learn(images, "a").last == 3
        assert client.predict(images[0])[0].label == "a"
        events = client.events()
        assert next(events)[0] == "status"
        toy.tell("class", {"label": "b"})
        assert next(events) == ("class", {"label": "b"})
        events.close()
    with Client(f"http://127.0.0.1:{port}", token="wrong-0123456789") as stranger, pytest.raises(ServiceError) as no:
        stranger.status()
    assert no.value.status == 401


def test_slow_heads_are_sent_away_and_hold_up_nobody(proxied, talk):
    port, _ = proxied
    start = time.monotonic()
    with ThreadPoolExecutor(40) as pool:
        slow = [pool.submit(talk, port, *pieces, pause=0.1) for pieces in SLOW for _ in range(8)]
        assert b" 200 " in talk(port, GET + b"Connection: close\r\n\r\n").partition(b"\r\n")[0]
        assert {one.result().partition(b"\r\n")[0] for one in slow} <= {b"", b"HTTP/1.1 408 Request Time-out"}
    assert time.monotonic() - start < 8


@pytest.mark.parametrize(
    "raw, status",
    [
        (GET + b"X: " + b"x" * 40_000 + b"\r\n\r\n", b"400"),
        (GET + b"X: y\r\n" * 20_000 + b"\r\n", b"400"),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"414"),
        (GET + b"Content-Length: 99999999\r\n\r\n", b"413"),
    ],
    ids=["a header", "headers", "an address", "a body"],
)
def test_what_is_huge_does_not_pass(proxied, talk, raw, status):
    assert talk(proxied[0], raw).split(b" ")[1] == status


def test_one_address_does_not_get_all_places(proxied):
    lines = [socket.create_connection(("127.0.0.1", proxied[0]), timeout=9) for _ in range(140)]
    for line in lines:
        line.sendall(GET + b"\r\n")
    answers = [line.recv(65536).split(b" ")[1] for line in lines]
    assert {b"200", b"503"} == set(answers)
    for line in lines:
        line.close()
