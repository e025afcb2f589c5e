"""Requests that no honest client sends: broken pictures, bodies and headers, wrong tokens, and endless patience."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
CUT = "cut"  # the connection ended without an answer
Random: TypeAlias = np.random.Generator
Outcome: TypeAlias = int | str  # a status, or what happened instead


@dataclass(frozen=True)
class Target:
    """A running service, and what one has to know to be heard by it."""

    url: str
    token: str | None
    patience: float = 20.0  # seconds for an answer

    def connect(self) -> socket.socket:
        place = urlsplit(self.url)
        assert place.hostname is not None
        return socket.create_connection((place.hostname, place.port or 80), timeout=self.patience)

    def head(self, method: str, path: str, **headers: str | int) -> bytes:
        """A request's head as an honest client writes it, but for what is given."""
        usual = {"Host": urlsplit(self.url).netloc, "Connection": "close"}
        if self.token is not None:
            usual["Authorization"] = f"Bearer {self.token}"
        lines = {**usual, **{name.replace("_", "-"): str(value) for name, value in headers.items()}}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode("latin-1")

    def tell(self, *pieces: bytes, pause: float = 0.0, leave: bool = False) -> Outcome:
        """Sends the pieces and reads the answer's status; `leave` hangs up instead."""
        with contextlib.suppress(ConnectionError, TimeoutError), self.connect() as line:
            for piece in pieces:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # an answer may be there all the same
                    line.sendall(piece)
                time.sleep(pause)
            return "left" if leave else _status(line)
        return CUT


def attacks(target: Target, rng: Random) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    """One after the other, for ever: a kind, and what does it."""
    kinds = {"picture": _picture, "body": _body, "head": _head, "stranger": _stranger}
    shares = (0.5, 0.2, 0.2, 0.1)
    while True:
        kind = str(rng.choice(list(kinds), p=shares))
        yield kind, lambda kind=kind: kinds[kind](target, rng)  # type: ignore[misc]


def slow(target: Target, number: int) -> Outcome:
    """Begins a body and does not end it; waits to be sent away."""
    learn = target.head("POST", "/v1/learn?label=slow", Content_Type="image/png", Content_Length=100)
    starts = [learn, learn + b"x"]  # slow heads are for a reverse proxy
    patient = Target(target.url, target.token, patience=120)
    return patient.tell(starts[number % len(starts)])


def _picture(target: Target, rng: Random) -> Outcome:
    raw = _broken(rng)
    learn = rng.random() < 0.5
    path = str(rng.choice(["/v1/learn", "/v1/held-out"])) if learn else "/v1/predict"
    if rng.random() < 0.5:
        entry = {"image" if rng.random() < 0.8 else "pixels": base64.b64encode(raw).decode()}
        body = {"samples": [{"label": "junk", **entry}]} if learn else {"images": [entry]}
        raw, kind = json.dumps(body).encode(), "application/json"
    else:
        path, kind = path + ("?label=junk" if learn else ""), f"image/{rng.choice(['png', 'jpeg', 'x'])}"
    return target.tell(target.head("POST", path, Content_Type=kind, Content_Length=len(raw)) + raw)


def _broken(rng: Random) -> bytes:
    file = io.BytesIO()
    size = rng.integers(1, 40, 2)
    Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(file, str(rng.choice(FORMATS)))
    raw = bytearray(file.getvalue())
    match rng.integers(5):
        case 0:  # a stump
            return bytes(raw[: rng.integers(len(raw))])
        case 1:  # some bytes are others
            for place in rng.integers(0, len(raw), rng.integers(1, 20)):
                raw[place] = rng.integers(256)
        case 2:  # only the beginning is
            raw[int(rng.integers(4, 64)) :] = rng.bytes(int(rng.integers(2000)))
        case 3:  # it claims a size
            side = int(rng.choice([2**15, 2**16 - 1, 2**24, 2**31 - 1]))
            head = b"IHDR" + struct.pack(">IIBBBBB", side, side, *rng.integers(0, 8, 5).tolist())
            return (
                b"\x89PNG\r\n\x1a\n"
                + struct.pack(">I", 13)
                + head
                + struct.pack(">I", zlib.crc32(head))
                + bytes(raw[33:])
            )
        case _:
            return rng.bytes(int(rng.integers(3000)))
    return bytes(raw)


def _body(target: Target, rng: Random) -> Outcome:
    def head(**headers: str | int) -> bytes:
        return target.head("POST", "/v1/learn?label=a", Content_Type="application/octet-stream", **headers)

    match rng.integers(7):
        case 0:  # less than it says, and gone
            return target.tell(head(Content_Length=1000) + bytes(int(rng.integers(1000))), leave=True)
        case 1:  # more than may be, said
            return target.tell(head(Content_Length=int(rng.integers(2**25, 2**60))))
        case 2:  # more than may be, not said
            piece = b"100000\r\n" + bytes(2**20) + b"\r\n"
            return target.tell(head(Transfer_Encoding="chunked"), *[piece] * 18)
        case 3:  # chunks that are none
            return target.tell(head(Transfer_Encoding="chunked") + rng.bytes(int(rng.integers(1, 200))), leave=True)
        case 4:  # two lengths
            return target.tell(head(Content_Length="5\r\nTransfer-Encoding: chunked") + b"0\r\n\r\n")
        case 5:  # JSON that is none, or deep
            text = [
                b"[" * 100_000,
                b'{"samples":' + b"9" * 9000,
                b'{"images": [NaN]}',
                b"\xff\xfe",
                b'"\\ud800"',
                b"{}",
            ]
            raw = text[rng.integers(len(text))]
            return target.tell(
                target.head("POST", "/v1/predict", Content_Type="application/json", Content_Length=len(raw)) + raw
            )
        case _:  # many small values
            raw = b'{"images": [' + b"[]," * int(rng.integers(1, 300_000)) + b"1]}"
            return target.tell(
                target.head("POST", "/v1/predict", Content_Type="application/json", Content_Length=len(raw)) + raw
            )


def _head(target: Target, rng: Random) -> Outcome:
    usual = target.head("GET", "/v1/status")
    match rng.integers(7):
        case 0:
            return target.tell(target.head("GET", "/v1/status", X="x" * int(rng.integers(1, 200_000))))
        case 1:
            return target.tell(usual[:-2] + b"X: y\r\n" * int(rng.integers(1, 20_000)) + b"\r\n")
        case 2:
            return target.tell(target.head("GET", "/" + "x" * int(rng.integers(1, 200_000))))
        case 3:  # no HTTP at all
            return target.tell(rng.bytes(int(rng.integers(1, 2000))) + b"\r\n\r\n")
        case 4:  # a byte of it is another
            raw = bytearray(usual)
            raw[rng.integers(len(raw))] = rng.integers(256)
            return target.tell(bytes(raw) + b"\r\n\r\n")
        case 5:
            method = str(rng.choice(["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "HEAD", "PROPFIND", "CONNECT"]))
            return target.tell(target.head(method, str(rng.choice(["/v1/learn", "/v1/status", "/", "*", "a:80"]))))
        case _:
            return target.tell(target.head("GET", f"/v1/status?{'%' * 5}{chr(rng.integers(33, 255))}&top=%ff&each=9e9"))


def _stranger(target: Target, rng: Random) -> Outcome:
    if target.token is None:
        return target.tell(
            target.head("GET", "/v1/status", Host=str(rng.choice(["evil.example", "", "10.0.0.1", "\xff"])))
        )
    wrong = [target.token[:-1], target.token + "x", "", "\xff" * 9, target.token.swapcase() + ".", "x" * 9000]
    return target.tell(target.head("GET", "/v1/status", Authorization=f"Bearer {rng.choice(wrong)}"))


def _status(line: socket.socket) -> Outcome:
    received = b""
    while b"\r\n" not in received and (data := line.recv(4096)):
        received += data
    with contextlib.suppress(ConnectionError):  # the rest of it
        while line.recv(65536):
            continue
    words = received.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else CUT
