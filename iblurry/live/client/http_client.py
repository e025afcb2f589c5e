"""HTTP calls to a service: kept connections, JSON answers, and retries while it is busy or away."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from iblurry.errors import InputError, ServiceError
from iblurry.storage.untrusted import parse_json

TEMPORARY = (429, 502, 503, 504)  # the queue is full, or the service (behind a proxy) is being restarted
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds before another try, doubled each time
DOWNLOAD_TIMEOUT = 120.0  # seconds without a byte: a model is made when it is asked for
PIECE = 2**18  # bytes read at once
EVENTS_TIMEOUT = 60.0  # seconds without a line of events; the service writes one every 15

Result = TypeVar("Result")


class HttpClient:
    """Calls one service at one address; may be shared by threads, since each call has a connection to itself.

    The URL is http or https, host and port, and a path prefix if there is one; the timeout is seconds without a byte.
    """

    def __init__(self, url: str, *, token: str | None, timeout: float) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._make, self._host, self._port, self._prefix = _parse_url(url)
        self._headers = {"Accept": "application/json"}
        if token is not None:
            if not (token.isascii() and token.isprintable() and token.strip() == token != ""):
                raise InputError("The token has characters that HTTP cannot carry; give printable ASCII.")
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: list[HTTPConnection] = []  # open, and waiting for the next call

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON of the answer; ServiceError where the service refuses or does not answer.

        A call may be made twice, since a kept connection may turn out to be closed: all calls are idempotent.
        """
        request = (method, self._prefix + path, body, {**self._headers, **(headers or {})})
        with self._service_errors():
            try:
                kept = self._idle.pop()
            except IndexError:
                kept = None
            if kept is not None:
                with contextlib.suppress(ConnectionError, HTTPException):
                    return self._exchange(kept, *request)
            return self._exchange(self._connection(self.timeout), *request)

    def lines(self, path: str) -> Generator[str]:
        """The lines of an answer that does not end."""
        connection = self._connection(max(self.timeout, EVENTS_TIMEOUT))
        with contextlib.closing(connection), self._service_errors():
            connection.request("GET", self._prefix + path, headers=self._headers)
            response = connection.getresponse()
            if response.status != 200:
                self._parse(response, response.read())
            while line := response.readline():
                yield line.decode("utf-8").rstrip("\r\n")

    def download(self, path: str, to: IO[bytes]) -> Message:
        """Write the body of an answer to a file; returns the answer's headers."""
        connection = self._connection(max(self.timeout, DOWNLOAD_TIMEOUT))
        with contextlib.closing(connection), self._service_errors():
            connection.request("GET", self._prefix + path, headers=self._headers)
            response = connection.getresponse()
            if response.status != 200:
                self._parse(response, response.read())
            left = int(response.getheader("Content-Length", "0"))
            while piece := response.read(PIECE):
                to.write(piece)
                left -= len(piece)
            if left > 0:
                raise IncompleteRead(b"", left)
            return response.headers

    def close(self) -> None:
        """Close all connections; the next call opens a new one."""
        while self._idle:
            self._idle.pop().close()

    def _exchange(
        self, connection: HTTPConnection, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        with contextlib.ExitStack() as on_error:
            on_error.callback(connection.close)
            if connection.sock is None:
                connection.connect()
            # A service that refuses a long body may answer, and close, before it has received all of it.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            content = response.read()
            if not response.will_close:
                self._idle.append(connection)
                on_error.pop_all()
        return self._parse(response, content)

    def _parse(self, response: HTTPResponse, content: bytes) -> dict[str, Any]:
        try:
            answer = parse_json(content)
        except ValueError:
            answer = None
        if response.status < 300 and isinstance(answer, dict):
            return answer
        if isinstance(answer, dict) and {"error", "message"} <= answer.keys():
            code, message = str(answer["error"]), str(answer["message"])
        else:
            status, code = f"{response.status} {response.reason}", "strange_answer"
            message = f"{self.url} answers {status} and is not an iblurry service; check the URL."
        later = response.getheader("Retry-After", "")
        seconds = float(later) if later.isdecimal() else None
        where = {name: answer.get(name) for name in ("index", "field")} if isinstance(answer, dict) else {}
        raise ServiceError(message, status=response.status, code=code, retry_after=seconds, **where)

    def _connection(self, timeout: float) -> HTTPConnection:
        return self._make(self._host, self._port, timeout=timeout)

    @contextlib.contextmanager
    def _service_errors(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            message = f"The certificate of {self.url} is not trusted ({error}); see $SSL_CERT_FILE."
            raise ServiceError(message, code="not_trusted") from error
        except (OSError, HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            message = (
                f"No answer from {self.url} ({why}); start the service with `iblurry live serve`, or give its address."
            )
            raise ServiceError(message) from error


def retry(seconds: float, call: Callable[[], Result]) -> Result:
    """Call; while the service is busy or away, call again for so many seconds, after Retry-After or doubling pauses."""
    began, pause = time.monotonic(), FIRST_PAUSE
    while True:
        try:
            return call()
        except ServiceError as error:
            if not is_temporary(error):
                raise
            delay = pause if error.retry_after is None else max(error.retry_after, FIRST_PAUSE)
            spent = time.monotonic() - began
            if spent + delay > seconds:
                message = f"{error} Tried for {spent:.0f} s." if spent >= 1 else str(error)
                raise error.with_message(message) from error
        time.sleep(delay)
        pause = min(2 * pause, LONGEST_PAUSE)


def is_temporary(error: ServiceError) -> bool:
    """Whether the same call may succeed a little later."""
    return error.code == "unreachable" or error.status in TEMPORARY


def _parse_url(url: str) -> tuple[type[HTTPConnection], str, int | None, str]:
    """(class of connection, host, port, prefix of every path)."""
    try:
        parts = urlsplit(url)
        kind = {"http": HTTPConnection, "https": HTTPSConnection}[parts.scheme]
        host, port = parts.hostname, parts.port
    except (KeyError, ValueError):
        kind, host, port = HTTPConnection, None, None
    if host is None or parts.query or parts.fragment or parts.username:
        raise InputError(f"{url!r} is not the URL of a service; write http://HOST:PORT, such as http://127.0.0.1:8000.")
    return kind, host, port, parts.path.rstrip("/")


def parse_events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Server-sent events: one field per line, an empty line after each event; comments begin with a colon."""
    name, data = "message", ""
    for line in lines:
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data":
            data += value.strip()
        elif not line and data:
            yield name, parse_json(data.encode())
            name, data = "message", ""
