"""The client's way to the service: patience that ends, connections that break, errors in sentences."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from iblurry import Client, InputError
from iblurry.errors import ServiceError
from tests.live.stand_in import IMAGES, StandIn

# patience


def test_it_waits_as_long_as_the_service_says(service, client, clock):
    service.troubles = ["busy", "busy"]
    assert client.learn(IMAGES[0], "x").accepted == 1
    assert clock.pauses == [2, 2]
    assert len(service.requests) == 3


def test_pauses_grow_while_it_is_away(service, client, clock):
    service.troubles = ["away"] * 9
    client.learn(IMAGES[0], "x")
    assert clock.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])


def test_patience_ends_with_the_sentence_of_the_service(service, clock):
    service.troubles = ["busy"] * 99
    with Client(service.url, patience=7) as client, pytest.raises(ServiceError) as caught:
        client.learn(IMAGES[0], "x")
    error = caught.value
    assert str(error).startswith("The queue is full")
    assert "6 s" in str(error)
    assert (error.status, error.code, error.retry_after) == (429, "queue_full", 2)
    assert clock.pauses == [2, 2, 2]
    assert service.samples == []


def test_what_was_accepted_before_an_error_is_said(service, client):
    service.queue_limit = 3
    service.troubles = ["", "", "full"]
    with pytest.raises(ServiceError) as caught:
        client.learn(IMAGES, "x")
    assert str(caught.value).startswith("The disk is full")
    assert "5 of 7" in str(caught.value)
    assert (caught.value.status, caught.value.code) == (507, "disk_full")
    assert len(service.requests) == 3  # a full disk is not tried again


def test_nobody_there(nobody, clock):
    with Client(nobody, patience=20) as client:
        with pytest.raises(ServiceError, match="Connection refused"):
            client.predict(IMAGES[0])
        assert clock.pauses == []  # only what is taught waits
        with pytest.raises(ServiceError) as caught:
            client.learn(IMAGES[0], "x")
        assert (caught.value.status, caught.value.code) == (None, "unreachable")
        assert 15 < sum(clock.pauses) <= 20
        assert not client.ready()


# the way there


def test_a_token(service):
    service.token = "open sesame"
    with Client(service.url) as client, pytest.raises(ServiceError, match="token") as caught:
        client.learn(IMAGES[0], "x")
    assert (caught.value.status, caught.value.code) == (401, "token")
    with Client(service.url, token="wrong") as client, pytest.raises(ServiceError):
        next(client.events())
    with Client(service.url, token="open sesame") as client:
        assert client.learn(IMAGES[0], "x").accepted == 1
        assert client.ready()
    for token in ("", "two\nlines", "ключ", " a "):
        with pytest.raises(InputError, match="token"):
            Client(service.url, token=token)


def test_a_service_below_a_path():
    with StandIn(prefix="/pets") as service, Client(service.url + "/") as client:
        assert client.learn(IMAGES[0], "x").accepted == 1
        assert client.url == service.url


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://a", "http://", "http://a:b", "http://[", "http://a/?b=c"])
def test_addresses_that_are_none(url):
    with pytest.raises(InputError, match=re.escape(repr(url))):
        Client(url)


def test_one_connection_is_kept_and_each_thread_has_its_own(service, client):
    for _ in range(5):
        client.status()
    assert service.connections == 1
    threads = [threading.Thread(target=client.learn, args=(IMAGES, str(row))) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(service.samples) == 8 * len(IMAGES)
    assert service.connections <= 8


def test_a_kept_connection_that_was_closed_meanwhile():
    with StandIn() as before, Client(before.url) as client:
        client.learn(IMAGES[0], "x")
        before.server.shutdown()
        before.server.server_close()
        with StandIn(port=before.server.server_port) as again:
            assert client.learn(IMAGES[0], "x").repeated == 0
            assert client.status()["accepted"] == len(again.samples) == 1


def test_a_connection_that_breaks_while_it_is_made(service, client, clock, monkeypatch):
    connect, tries = socket.create_connection, []

    def reset(*given, **more):
        tries.append(given)
        if len(tries) < 3:
            raise ConnectionResetError(104, "Connection reset by peer")
        return connect(*given, **more)

    monkeypatch.setattr(socket, "create_connection", reset)
    assert client.learn(IMAGES[0], "x").accepted == 1
    assert len(service.samples) == 1


class Odd(BaseHTTPRequestHandler):
    """Another program at that address; it refuses before it has heard all."""

    def do_GET(self):
        self.send_response(200 if self.path != "/readyz" else 302)
        self.end_headers()
        self.wfile.write(b"<html>Hello</html>")

    def do_POST(self):
        self.send_response(413)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def odd():
    with HTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_another_program_at_that_address(odd):
    with Client(odd) as client:
        with pytest.raises(ServiceError, match="200 OK") as caught:
            client.status()
        assert (caught.value.status, caught.value.code) == (200, "strange_answer")
        with pytest.raises(ServiceError, match="answers 302 Found"):
            client.ready()


def test_an_answer_before_all_was_heard(odd):
    with Client(odd) as client:
        client.__dict__["_image_and_queue"] = (1, 8, 8), 256
        with pytest.raises(ServiceError) as caught:
            client.learn([b"x" * 2**23], "x")
        assert caught.value.status == 413


def test_a_certificate_that_is_not_trusted_is_not_tried_again(service, client, clock, monkeypatch):
    def connect(*_, **__):
        raise ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(ServiceError, match="self-signed") as caught:
        client.learn(IMAGES[0], "x")
    assert caught.value.code == "not_trusted"
    assert clock.pauses == []


def test_neither_torch_nor_numpy_is_needed(service, tmp_path):
    (tmp_path / "a.png").write_bytes(b"a")
    code = (
        "import sys\nfrom iblurry import Client\n"
        f"with Client({service.url!r}) as client:\n    print(client.learn({str(tmp_path / 'a.png')!r}, 'x').last)\n"
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n[]\n"
