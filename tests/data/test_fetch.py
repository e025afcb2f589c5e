"""Downloads from a server on this machine that can be told to misbehave."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from iblurry.data.fetch import download, fetch
from iblurry.data.load import SOURCES, load
from iblurry.data.sources.mnist import FILES
from iblurry.errors import DataError, InputError, UnknownNameError

BODY = np.random.default_rng(0).bytes(300_000)
MD5 = hashlib.md5(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`; cuts every reply after `cut` bytes, ignores ranges or hides lengths when told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file.bin": BODY}
        self.cut: int | None = None
        self.ranges = True
        self.lengths = True
        self.asked: list[str | None] = []

    def url(self, name: str = "file.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.server.files.get(self.path)
        asked = self.headers["Range"]
        self.server.asked.append(asked)
        if body is None:
            return self.send_error(404)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.ranges else 0
        if start >= len(body):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if self.server.lengths:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start:][: self.server.cut])
        return None

    def log_message(self, *_: object) -> None:
        """Keeps the test output clean."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def get(url: str, target: Path, md5: str = MD5) -> None:
    download(url, target, md5=md5, remedy="Do it by hand.")


def test_whole(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.bin"
    get(server.url(), target)
    assert target.read_bytes() == BODY
    assert [file.name for file in target.parent.iterdir()] == ["file.bin"]
    get(server.url(), target)
    assert server.asked == [None]  # the second time nothing was asked for


def test_continues_after_every_cut(server: Server, tmp_path: Path) -> None:
    server.cut = 100_001
    get(server.url(), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert server.asked == [None, "bytes=100001-", "bytes=200002-"]


@pytest.mark.parametrize(
    "name, there, asked",
    [
        ("file.bin.part", BODY[:1234], "bytes=1234-"),
        ("file.bin.part", BODY, f"bytes={len(BODY)}-"),
        ("file.bin", b"old", None),
    ],
)
def test_continues_what_an_earlier_try_left(
    server: Server, tmp_path: Path, name: str, there: bytes, asked: str | None
) -> None:
    (tmp_path / name).write_bytes(there)
    get(server.url(), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert [file.name for file in tmp_path.iterdir()] == ["file.bin"]
    assert server.asked == [asked]


def test_a_server_that_always_starts_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(BODY[:1234])
    get(server.url(), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY
    server.cut = 1000
    with pytest.raises(DataError, match=r"The connection to .* was lost"):
        get(server.url(), tmp_path / "other.bin")


def test_a_server_that_hides_the_length(server: Server, tmp_path: Path) -> None:
    server.lengths = False
    get(server.url(), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY


def test_a_dead_connection_keeps_what_came(server: Server, tmp_path: Path) -> None:
    server.cut = 0
    (tmp_path / "file.bin.part").write_bytes(BODY[:50])
    with pytest.raises(DataError, match="by hand"):
        get(server.url(), tmp_path / "file.bin")
    assert (tmp_path / "file.bin.part").read_bytes() == BODY[:50]


def test_a_wrong_checksum_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{MD5} instead of {'0' * 32}"):
        get(server.url(), tmp_path / "file.bin", md5="0" * 32)
    (tmp_path / "file.bin.part").write_bytes(b"x" * 99)  # the beginning of another file
    with pytest.raises(DataError, match="Try again"):
        get(server.url(), tmp_path / "file.bin")
    assert list(tmp_path.iterdir()) == []
    get(server.url(), tmp_path / "file.bin")


def test_answers_that_are_no_file(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing answered 404 .*by hand"):
        get(server.url("nothing"), tmp_path / "file.bin")
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"refused.*by hand"):
        get(server.url(), tmp_path / "file.bin")
    assert list(tmp_path.iterdir()) == []


class TestFetch:
    @pytest.fixture
    def fashion(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
        rng = np.random.default_rng(0)
        server.files = {}
        for name, shape in zip(FILES, [(6, 28, 28), (6,), (2, 28, 28), (2,)], strict=True):
            head = bytes((0, 0, 8, len(shape))) + np.array(shape, dtype=">u4").tobytes()
            server.files[f"/{name}.gz"] = gzip.compress(head + rng.integers(0, 10, shape, dtype=np.uint8).tobytes())
        public = {server.url(name[1:]): hashlib.md5(body).hexdigest() for name, body in server.files.items()}
        monkeypatch.setitem(SOURCES, "fashion_mnist", replace(SOURCES["fashion_mnist"], files=public))
        return server

    def test_fetched_is_loaded(self, fashion: Server, tmp_path: Path) -> None:
        place = fetch("fashion_mnist", tmp_path)
        assert place == tmp_path / "fashion_mnist.npz"
        assert len(load("fashion_mnist", tmp_path).train) == 6
        asked = len(fashion.asked)
        assert asked == 4
        assert fetch("fashion_mnist", tmp_path) == place
        place.unlink()
        fetch("fashion_mnist", tmp_path)
        assert len(fashion.asked) == asked

    def test_without_a_network(self, fashion: Server, tmp_path: Path) -> None:
        fashion.shutdown()
        fashion.server_close()
        with pytest.raises(DataError) as caught:
            fetch("fashion_mnist", tmp_path)
        said = str(caught.value)
        assert "`iblurry data import fashion_mnist PATH`, where PATH is the folder with these files" in said
        assert all(url in said for url in SOURCES["fashion_mnist"].files)

    def test_refuses(self, tmp_path: Path) -> None:
        with pytest.raises(UnknownNameError, match="Did you mean 'fashion_mnist'"):
            fetch("fashion-mnist", tmp_path)
        with pytest.raises(InputError, match="nothing to fetch for 'digits'"):
            fetch("digits", tmp_path)
