"""HTTP calls to a service by httpx: JSON answers, errors in sentences, and retries while it is busy or away."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from iblurry.errors import InputError, ServiceError
from iblurry.storage.untrusted import parse_json

if TYPE_CHECKING:
    import httpx

TEMPORARY = (429, 502, 503, 504)  # the queue is full, or the service (behind a proxy) is being restarted
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds before another try, doubled each time
DOWNLOAD_TIMEOUT = 120.0  # seconds without a byte: a model is made when it is asked for
EVENTS_TIMEOUT = 60.0  # seconds without a line of events; the service writes one every 15

Result = TypeVar("Result")


class HttpClient:
    """Calls one service at one address; may be shared by threads.

    The URL is http or https, host and port, and a path prefix if there is one; the timeout is seconds without a byte.
    """

    def __init__(self, url: str, *, token: str | None, timeout: float) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise InputError("The client needs httpx; run: pip install 'iblurry[live]'.") from error
        self.url, self.timeout, headers = url.rstrip("/"), timeout, {"Accept": "application/json"}
        if token is not None:
            if not (token.isascii() and token.isprintable() and token.strip() == token != ""):
                raise InputError("The token has characters that HTTP cannot carry; give printable ASCII.")
            headers["Authorization"] = f"Bearer {token}"
        wrong = InputError(f"{url!r} is not the URL of a service; write http://HOST:PORT, as http://127.0.0.1:8000.")
        try:
            parts = urlsplit(url)
            is_known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError as error:
            raise wrong from error
        if not is_known or parts.query or parts.fragment or parts.username:
            raise wrong
        self._client = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=timeout,
            limits=httpx.Limits(max_connections=None),
            verify=ssl.create_default_context() if parts.scheme == "https" else False,  # obeys $SSL_CERT_FILE
            trust_env=False,
        )

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the JSON of the answer; ServiceError where the service refuses or does not answer.

        A call may be made twice, since a kept connection may turn out to be closed: all calls are idempotent.
        """
        import httpx

        def send() -> httpx.Response:
            return self._client.request(method, path, content=body, headers=headers)

        with self._service_errors():
            try:
                response = send()
            except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
                if isinstance(error, httpx.ConnectError):
                    raise
                response = send()
        return self._parse(response)

    def lines(self, path: str) -> Generator[str]:
        """Yield the lines of an answer that does not end."""
        timeout = max(self.timeout, EVENTS_TIMEOUT)
        with self._service_errors(), self._client.stream("GET", path, timeout=timeout) as response:
            self._check(response)
            yield from response.iter_lines()

    def download(self, path: str, to: IO[bytes]) -> Mapping[str, str]:
        """Write the body of an answer to a file; returns the answer's headers."""
        timeout = max(self.timeout, DOWNLOAD_TIMEOUT)
        with self._service_errors(), self._client.stream("GET", path, timeout=timeout) as response:
            self._check(response)
            for piece in response.iter_bytes():
                to.write(piece)
            return response.headers

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _check(self, response: httpx.Response) -> None:
        if response.status_code != 200:
            response.read()
            self._parse(response)

    def _parse(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer = parse_json(response.content)
        except ValueError:
            answer = None
        if response.is_success and isinstance(answer, dict):
            return answer
        if isinstance(answer, dict) and {"error", "message"} <= answer.keys():
            code, message = str(answer["error"]), str(answer["message"])
        else:
            status, code = f"{response.status_code} {response.reason_phrase}", "strange_answer"
            message = f"{self.url} answers {status} and is not an iblurry service; check the URL."
        later = response.headers.get("Retry-After", "")
        seconds = float(later) if later.isdecimal() else None
        where = {name: answer.get(name) for name in ("index", "field")} if isinstance(answer, dict) else {}
        raise ServiceError(message, status=response.status_code, code=code, retry_after=seconds, **where)

    @contextlib.contextmanager
    def _service_errors(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except httpx.RequestError as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
                cause = cause.__cause__ or cause.__context__
            if cause is not None:
                message = f"The certificate of {self.url} is not trusted ({cause}); see $SSL_CERT_FILE."
                raise ServiceError(message, code="not_trusted") from error
            why = str(error) or type(error).__name__
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


def parse_events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield server-sent events: one field per line, an empty line after each event; comments begin with a colon."""
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
