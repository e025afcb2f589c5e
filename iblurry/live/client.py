"""A live service from Python: send samples, get predictions, watch it learn."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import re
import ssl
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, TypeGuard, TypeVar, cast
from urllib.parse import urlsplit

from iblurry.data.labels import known_label
from iblurry.errors import DataError, InputError, ServiceError, counted
from iblurry.storage.files import replacing
from iblurry.storage.untrusted import parse_json

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    # A path, a picture's bytes, one of Pillow's, or (C, H, W)
    ImageLike: TypeAlias = str | os.PathLike[str] | bytes | Image | NDArray[np.uint8]

POLL_SECONDS = 0.1
MODELS = (".pt2", ".onnx", ".safetensors")
JSON_HEADERS = {"Content-Type": "application/json"}
SAMPLES = 256  # of one request; the service's default limits, and where its own are lower it says so
BYTES = 15 * 2**20
KEY = 180  # characters; the service takes 200, and the index of a request is appended
TOO_MUCH = (408, 413)  # statuses of a request that is too long, or takes too long to send
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")  # of Pillow's images; others are converted to RGB
REFUSED = (400, 409, 413, 422, 429, 507)  # statuses that say: nothing of this request was accepted, now or before
UNCLEAR = ("strange_answer", "mistake")  # codes of a proxy's answer, and of an internal error
TEMPORARY = (429, 502, 503, 504)  # the queue is full, or the service (behind a proxy) is being restarted
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds before another try, doubled each time
DOWNLOAD_TIMEOUT = 120.0  # seconds without a byte: a model is made when it is asked for
EVENTS_TIMEOUT = 60.0  # seconds without a line of events; the service writes one every 15

Result = TypeVar("Result")


@dataclass(frozen=True)
class Receipt:
    """Samples that are on the service's disk and will be learnt, or are held out.

    Parameters
    ----------
    accepted : int
        How many.
    first, last : int
        Numbers of the first and the last one, from 1; with other clients, not all between them are ours. Samples that
        are held out have none: 0.
    repeated : int
        How many had been accepted before, under the same key.
    operation : int
        Of samples that are held out: the number of the last one, for `Client.wait(operation=...)`.
    """

    accepted: int
    first: int
    last: int
    repeated: int
    operation: int = 0


class TopLabel(NamedTuple):
    """A label and its probability."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The model's answer for one image.

    Parameters
    ----------
    label : str
        The most probable label.
    probability : float
        Its probability, over the classes met so far.
    top : tuple of TopLabel
        The most probable labels, the best first.
    model : int
        Samples the model had learnt.
    id : str
        Under which its label can be sent later, see `Client.label`.
    unknown : bool
        Whether `probability` is below `threshold`: perhaps a class that the service never met.
    threshold : float, optional
        None while too few samples were tested.
    """

    label: str
    probability: float
    top: tuple[TopLabel, ...]
    model: int
    id: str = ""
    unknown: bool = False
    threshold: float | None = None


@dataclass(frozen=True)
class CorrectionReceipt:
    """Corrections that are on the service's disk and will be applied.

    Parameters
    ----------
    accepted : int
        How many.
    operation : int
        The number of the last one, for `Client.wait(operation=...)`.
    repeated : bool
        Whether they had been accepted before, under the same key.
    sentence : str
        What becomes of what was learnt from the mistake.
    """

    accepted: int
    operation: int
    repeated: bool
    sentence: str


class Client:
    """A live service from Python. Needs httpx (the extra `live`), and NumPy for arrays; threads may share it.

    Images are paths, the bytes of pictures, Pillow's images, uint8 arrays (C, H, W), or several of these: a list, or an
    array (N, C, H, W). Pictures are resized by the service; arrays must have its shape.

    Parameters
    ----------
    url : str
        Address of the service.
    token : str, optional
        The token of the service, if it needs one.
    timeout : float
        Seconds to wait for the next byte of a response.
    patience : float
        Seconds for which `learn` and `wait` retry while the service is busy or away.

    Raises
    ------
    ServiceError
        From every method, if the service refuses the request or does not answer.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        timeout: float = 30.0,
        patience: float = 300.0,
    ) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise InputError("The client needs httpx; run: pip install 'iblurry[live]'.") from error
        self.url, self.timeout, self.patience = url.rstrip("/"), timeout, patience
        headers = {"Accept": "application/json"}
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
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=timeout,
            limits=httpx.Limits(max_connections=None),
            verify=ssl.create_default_context() if parts.scheme == "https" else False,  # obeys $SSL_CERT_FILE
            trust_env=False,
        )

    def learn(
        self, images: ImageLike | Sequence[ImageLike], labels: str | Sequence[str], key: str | None = None
    ) -> Receipt:
        """Send labelled images; returns when they are on the service's disk.

        Each is counted once, however often the connection breaks, because every request has an idempotency key.

        Parameters
        ----------
        images : image or sequence of images
            What to learn.
        labels : str or sequence of str
            One for each image, or one for all.
        key : str, optional
            With a key, the same call again (even from another process) changes nothing.
        """
        return self._send(images, labels, key)

    def hold_out(
        self, images: ImageLike | Sequence[ImageLike], labels: str | Sequence[str], key: str | None = None
    ) -> Receipt:
        """Send labelled images that are never learnt: the service predicts them as it learns.

        `held_out_accuracy` of `status` and `history` is the fraction of correct predictions. The newest are kept,
        as many as the memory can hold.

        Parameters
        ----------
        images : image or sequence of images
            What to predict.
        labels : str or sequence of str
            One for each image, or one for all; labels that were never learnt are not counted.
        key : str, optional
            As in `learn`.
        """
        return self._send(images, labels, key, held_out=True)

    def _send(
        self,
        images: ImageLike | Sequence[ImageLike],
        labels: str | Sequence[str],
        key: str | None,
        *,
        held_out: bool = False,
    ) -> Receipt:
        pictures = _list_images(images)
        each = [labels] * len(pictures) if isinstance(labels, str) else list(labels)
        upload = self.upload(pictures, each, key, held_out=held_out)
        try:
            upload.send()
        except ServiceError as error:
            if not upload.accepted:
                raise
            verb = "is" if upload.accepted == 1 else "are"
            before = f"The first {upload.accepted:,} of {len(pictures):,} samples {verb} accepted."
            raise error.with_message(f"{error} {before}") from error
        return upload.receipt

    def upload(
        self,
        images: ImageSequence,
        labels: Sequence[str],
        key: str | None = None,
        *,
        size: int = SAMPLES,
        skip_bad: bool = False,
        held_out: bool = False,
    ) -> Upload:
        """An upload that is sent step by step, so that its progress can be shown.

        Parameters
        ----------
        images : ImageSequence
            Single images, each read when it is due.
        labels : sequence of str
            One for each image.
        key : str, optional
            As in `learn`.
        size : int
            Samples per request.
        skip_bad : bool
            Skip pictures that cannot be read, instead of failing.
        held_out : bool
            Never learn them, see `hold_out`.
        """
        return Upload(self, images, labels, key, size=size, skip_bad=skip_bad, held_out=held_out)

    def predict(self, images: ImageLike | Sequence[ImageLike], top: int = 5) -> list[Prediction]:
        """Predict each image with the newest model; learning goes on meanwhile.

        Parameters
        ----------
        images : image or sequence of images
            What to predict.
        top : int
            Labels for each image.
        """
        pictures = _list_images(images)
        shape, _ = self._image_and_queue
        sent = range(0)

        def send(indices: range) -> list[Prediction]:
            nonlocal sent
            sent = indices
            body = _encode_body("images", (encode_image(pictures[index], shape) for index in indices))
            answer = self._call("POST", f"/v1/predict?top={int(top)}", body, JSON_HEADERS)
            return [_prediction(each, answer) for each in answer["answers"]]

        predictions: list[Prediction] = []
        try:
            for first in range(0, len(pictures), SAMPLES):
                indices = range(first, min(first + SAMPLES, len(pictures)))
                for part in send_in_halves(indices, send, size=lambda i: encoded_size(pictures[i]), limit=SAMPLES):
                    predictions += part
        except ServiceError as error:
            raise _name_faulty(error, sent, dict(enumerate(pictures))) from error
        return predictions

    def label(self, ids: str | Sequence[str], labels: str | Sequence[str], key: str | None = None) -> Receipt:
        """Send labels of images that were predicted before; the service has the images, for a while.

        Parameters
        ----------
        ids : str or sequence of str
            The `Prediction.id` of each prediction.
        labels : str or sequence of str
            One for each id, or one for all.
        key : str, optional
            As in `learn`.
        """
        ids = [ids] if isinstance(ids, str) else list(ids)
        named = _check_upload(len(ids), [labels] * len(ids) if isinstance(labels, str) else list(labels), key)
        entries = [{"id": one, "label": label} for one, label in zip(ids, named, strict=True)]
        answer = self._post("/v1/label", {"labels": entries}, key)
        repeated = answer["accepted"] if answer["repeated"] else 0
        return Receipt(answer["accepted"], answer["first"], answer["last"], repeated)

    def remove(self, sample: int, key: str | None = None) -> CorrectionReceipt:
        """Take a sample out of the memory, by its number."""
        return self.correct([{"action": "remove", "sample": sample}], key)

    def relabel(self, sample: int, label: str, key: str | None = None) -> CorrectionReceipt:
        """Give a sample of the memory another label, by its number; a new label makes a new class."""
        return self.correct([{"action": "relabel", "sample": sample, "label": label}], key)

    def rename_class(self, label: str, to: str, key: str | None = None) -> CorrectionReceipt:
        """Give a class a new name, which no other class has."""
        return self.correct([{"action": "rename", "label": label, "to": to}], key)

    def merge_class(self, label: str, to: str, key: str | None = None) -> CorrectionReceipt:
        """Merge a class into another."""
        return self.correct([{"action": "merge", "label": label, "to": to}], key)

    def delete_class(self, label: str, key: str | None = None) -> CorrectionReceipt:
        """Delete a class with its samples in the memory; it is never predicted again."""
        return self.correct([{"action": "delete", "label": label}], key)

    def correct(self, corrections: Sequence[dict[str, Any]], key: str | None = None) -> CorrectionReceipt:
        """Send several corrections, of which all are accepted, or none; they are on the disk when it returns.

        Parameters
        ----------
        corrections : sequence of dict
            As `POST /v1/correct` takes them: {"action": "remove", "sample": 17} and so on.
        key : str, optional
            As in `learn`.
        """
        answer = self._post("/v1/correct", {"corrections": list(corrections)}, key)
        return CorrectionReceipt(**{f.name: answer[f.name] for f in dataclasses.fields(CorrectionReceipt)})

    def _post(self, path: str, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        """Retried while the service is busy or away; counted once, because of its key."""
        headers = JSON_HEADERS | {"Idempotency-Key": key or uuid.uuid4().hex}
        raw = json.dumps(body).encode()
        return retry(self.patience, lambda: self._call("POST", path, raw, headers))

    def status(self) -> dict[str, Any]:
        """What it learns with, samples accepted and learnt, queue, accuracy, disk, and more."""
        return self._call("GET", "/v1/status")

    def classes(self) -> list[dict[str, Any]]:
        """Each class met so far: samples seen, in the memory, tested and right before they were learnt."""
        found: list[dict[str, Any]] = self._call("GET", "/v1/classes")["classes"]
        return found

    def memory(self, each: int = 20) -> dict[str, Any]:
        """Returns at most `each` samples of each class in the memory, the most important first, as thumbnails."""
        return self._call("GET", f"/v1/memory?each={int(each)}")

    def history(self) -> list[dict[str, Any]]:
        """Accuracy, learning rate and classes along the samples learnt."""
        found: list[dict[str, Any]] = self._call("GET", "/v1/history")["points"]
        return found

    def confusion(self) -> list[dict[str, Any]]:
        """How often recent samples of a `label` were given an `answer` before they were learnt; only what occurred."""
        found: list[dict[str, Any]] = self._call("GET", "/v1/confusion")["counts"]
        return found

    def download_model(self, path: str | os.PathLike[str]) -> int:
        """Write the current model to a file, whole or not at all; returns how many samples it has learnt.

        Parameters
        ----------
        path : path
            NAME.pt2 (torch.export, for `iblurry.load_exported`), NAME.onnx, or NAME.safetensors (for `Learner.load`).
        """
        place = Path(path)
        if place.suffix not in MODELS:
            raise InputError(f"{place} ends in {place.suffix!r}; end its name in {', '.join(MODELS)}.")
        source = self._stream(f"/v1/model?format={place.suffix[1:]}", DOWNLOAD_TIMEOUT)
        with replacing(place) as temporary, temporary.open("wb") as file, source as response:
            for piece in response.iter_bytes():
                file.write(piece)
        return int(response.headers["X-Samples"])

    def ready(self) -> bool:
        """Whether it is reachable, learns and answers."""
        try:
            self._call("GET", "/readyz")
        except ServiceError as error:
            if not is_temporary(error):
                raise
            return False
        return True

    def wait(
        self,
        learnt: int | None = None,
        *,
        operation: int | None = None,
        timeout: float = 300.0,
        on_status: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Wait until the model that answers has learnt enough; returns the status.

        Parameters
        ----------
        learnt : int, optional
            Up to this sample; otherwise all that are accepted now.
        operation : int, optional
            Up to this correction: `CorrectionReceipt.operation`. Without either, all that were accepted.
        timeout : float
            Seconds to wait; it fails earlier if the service is away for longer than `patience`.
        on_status : callable, optional
            Called with every status on the way.
        """
        deadline = time.monotonic() + timeout
        goal, last = (0, operation) if learnt is None and operation is not None else (learnt, operation or 0)
        while True:
            status = retry(max(0.0, min(self.patience, deadline - time.monotonic())), self.status)
            if goal is None:
                goal, last = status["accepted"], max(last, status.get("operations", 0))
            if on_status is not None:
                on_status(status)
            applied = min(status.get("applied", last), status.get("model_operation", last))
            if min(status["learnt"], status["model"]) >= goal and applied >= last:
                return status
            if time.monotonic() > deadline:
                progress = f"The model has learnt {status['model']:,} of {counted(goal, 'sample')}."
                raise ServiceError(
                    f"{progress} {status['sentence']} Waited for {timeout:g} s; wait longer.", code="not_learnt_yet"
                )
            time.sleep(POLL_SECONDS)

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens, as it happens: ("status", ...), ("point", ...), ("class", ...); ends when the service does."""
        name, data = "message", ""
        with self._stream("/v1/events", EVENTS_TIMEOUT) as response:
            for line in response.iter_lines():  # a field per line, an empty line after each event
                field, _, value = line.partition(":")
                if field == "event":
                    name = value.strip()
                elif field == "data":
                    data += value.strip()
                elif not line and data:
                    yield name, parse_json(data.encode())
                    name, data = "message", ""

    def close(self) -> None:
        """Close its connections; `with Client(...) as client` does it."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _image_and_queue(self) -> tuple[tuple[int, ...], int]:
        """The shape of its images, and how many samples may wait."""
        status = self.status()
        return tuple(status["image"]), status["queue_limit"]

    def _call(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the JSON of the answer; ServiceError where the service refuses or does not answer.

        A call may be made twice, since a kept connection may turn out to be closed: all calls are idempotent.
        """
        import httpx

        call = partial(self._http.request, method, path, content=body, headers=headers)
        with self._service_errors():
            try:
                response = call()
            except httpx.ConnectError:
                raise
            except (httpx.NetworkError, httpx.RemoteProtocolError):
                response = call()
        return self._parse(response)

    @contextmanager
    def _stream(self, path: str, timeout: float) -> Iterator[httpx.Response]:
        """An answer that is read piece by piece; `timeout` is for each of them, unless the client's own is longer."""
        timeout = max(self.timeout, timeout)
        with self._service_errors(), self._http.stream("GET", path, timeout=timeout) as response:
            if response.status_code != 200:
                response.read()
                self._parse(response)
            yield response

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

    @contextmanager
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


def _prediction(answer: dict[str, Any], whole: dict[str, Any]) -> Prediction:
    top = tuple(TopLabel(each["label"], each["probability"]) for each in answer["top"])
    more = answer.get("id", ""), answer.get("unknown", False), whole.get("threshold")
    return Prediction(answer["label"], answer["probability"], top, whole["model"], *more)


class ImageSequence(Protocol):
    """Paths, bytes of pictures and arrays (C, H, W), each made when it is due; DataError where one cannot be read."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> ImageLike: ...


class Upload:
    """Sends labelled images in requests of `size` samples, or of a half of it, a quarter, ...; made by `Client.upload`.

    Each request has an idempotency key made of `key` and the index of its first sample. So the same samples under the
    same key meet the requests in which they were accepted, whatever the service's limits were then, and count once. A
    sample that is skipped keeps its index. Requests of more than `max_size` samples are split at once.
    """

    def __init__(
        self,
        client: Client,
        images: ImageSequence,
        labels: Sequence[str],
        key: str | None,
        *,
        size: int,
        skip_bad: bool,
        held_out: bool,
    ) -> None:
        self._labels = _check_upload(len(images), labels, key)
        self._shape, queue_limit = retry(client.patience, lambda: client._image_and_queue)
        self._client, self._images, self._key, self._size = client, images, key or uuid.uuid4().hex, size
        self._max_size = size if key else min(size, queue_limit)  # with a key, more may have been accepted before
        self._patience, self._skip_bad = client.patience, skip_bad
        self._path = "/v1/held-out" if held_out else "/v1/learn"
        self._pending: dict[int, ImageLike | None] = {}
        self._sent: list[int] = []  # indices in the last request
        self._answers: list[dict[str, Any]] = []
        self.skipped: list[int] = []
        self.failed_at: int | None = None  # index of the picture that could not be read
        self.unconfirmed = range(0)  # indices of a request that got no answer

    def send(self, on_request: Callable[[], None] | None = None) -> None:
        """Send all of them.

        Parameters
        ----------
        on_request : callable, optional
            Called after each request.
        """

        def size(index: int) -> int:
            return encoded_size(self._pending[index], self._labels[index])

        for first in range(0, len(self._images), self._size):
            indices = range(first, min(first + self._size, len(self._images)))
            self._pending = {index: self._read(index, partial(self._images.__getitem__, index)) for index in indices}
            try:
                for _ in send_in_halves(indices, self._request, size=size, limit=self._max_size):
                    if on_request is not None:
                        on_request()
            except ServiceError as error:
                if (bad := self._bad_picture(error)) is not None:
                    self.failed_at = bad
                raise _name_faulty(error, self._sent, self._pending) from error

    def confirm(self) -> None:
        """Send once more what got no answer: the service knows it by its key, or accepts it now."""
        self._patience = 0
        if self.unconfirmed:
            self._request(self.unconfirmed)

    @property
    def accepted(self) -> int:
        """Samples the service has confirmed."""
        return sum(answer["accepted"] for answer in self._answers)

    @property
    def receipt(self) -> Receipt:
        """A receipt of what was accepted so far, at least one sample."""
        repeated = sum(answer["accepted"] for answer in self._answers if answer["repeated"])
        first, last = self._answers[0].get("first", 0), self._answers[-1].get("last", 0)
        return Receipt(self.accepted, first, last, repeated, self._answers[-1].get("operation", 0))

    def _request(self, indices: range) -> None:
        encoded = {index: element for index in indices if (element := self._encode(index)) is not None}
        if not encoded:
            return
        # By the index alone: other content in a request at the same index is refused by the service.
        headers = JSON_HEADERS | {"Idempotency-Key": f"{self._key}:{indices.start}" if indices.start else self._key}
        body = _encode_body("samples", encoded.values())
        unclear = self.unconfirmed == indices
        self._sent, self.unconfirmed = list(encoded), indices

        def post() -> dict[str, Any]:
            nonlocal unclear
            try:
                return self._client._call("POST", self._path, body, headers)
            except ServiceError as error:
                unclear |= error.status is None or error.code in UNCLEAR
                raise

        try:
            answer = retry(self._patience, post)
        except ServiceError as error:
            if error.status in REFUSED or not unclear:
                self.unconfirmed = range(0)
            bad = self._bad_picture(error)
            if bad is None or not self._skip_bad:
                raise
            self._skip(bad)
            self._request(indices)
        else:
            self.unconfirmed = range(0)
            self._answers.append(answer)

    def _bad_picture(self, error: ServiceError) -> int | None:
        """Index of the picture that the service could not read."""
        return _find_faulty(error, self._sent) if error.field == "image" else None

    def _encode(self, index: int) -> bytes | None:
        image = self._pending[index]
        if image is None:
            return None
        return self._read(index, lambda: encode_image(image, self._shape, self._labels[index]))

    def _read(self, index: int, read: Callable[[], Result]) -> Result | None:
        """None where it cannot be read and is skipped."""
        try:
            return read()
        except DataError:
            if not self._skip_bad:
                self.failed_at = index
                raise
            self._skip(index)
            return None

    def _skip(self, index: int) -> None:
        self._pending[index] = None
        self.skipped.append(index)


def send_in_halves(
    indices: range, send: Callable[[range], Result], *, size: Callable[[int], int], limit: int
) -> Iterator[Result]:
    """Send these indices in one request, or in halves where that is too much or a part is known by its key.

    Halves of halves always lie at the same places, so what was accepted in parts is met again in the same parts.
    """
    if len(indices) == 1:
        yield send(indices)
        return
    if len(indices) <= limit and sum(map(size, indices)) <= BYTES:
        try:
            answer = send(indices)
        except ServiceError as error:
            if error.index is not None or not (error.status in TOO_MUCH or error.code == "key_reused"):
                raise  # a half would be refused, too
        else:
            yield answer
            return
    middle = len(indices) // 2
    for half in (indices[:middle], indices[middle:]):
        yield from send_in_halves(half, send, size=size, limit=limit)


def _list_images(images: ImageLike | Sequence[ImageLike]) -> list[ImageLike]:
    """The single images of whatever was given: one, several, or an array (N, C, H, W)."""
    if isinstance(images, str | os.PathLike | bytes) or _is_pillow(images):
        return [images]
    if isinstance(images, list | tuple):
        return [image for group in images for image in _list_images(group)]
    import numpy as np

    array = np.asarray(images)
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise InputError(
            f"An image is a path, the bytes of a picture, a Pillow image, or an array of bytes (uint8) of the "
            f"shape (C, H, W) or (N, C, H, W), not {array.dtype} of the shape {array.shape}."
        )
    return [array] if array.ndim == 3 else list(array)


def encode_image(image: ImageLike, shape: tuple[int, ...], label: str | None = None) -> bytes:
    """One element of a request's JSON; an array must have the service's shape (C, H, W)."""
    form, raw = "image", image
    if isinstance(image, str | os.PathLike):
        try:
            raw = Path(image).read_bytes()
        except OSError as error:
            why = error.strerror or error
            raise DataError(f"{image} cannot be read ({why}); give the path of a picture.") from error
    elif _is_pillow(image):
        raw = _to_png(image)
    elif not isinstance(image, bytes):
        array = cast("NDArray[np.uint8]", image)
        if array.shape != shape:
            raise InputError(f"The image has the shape {array.shape}, and this service takes (C, H, W) = {shape}.")
        form, raw = "pixels", array.tobytes()
    assert isinstance(raw, bytes)
    element = {} if label is None else {"label": label}
    return json.dumps(element | {form: base64.b64encode(raw).decode("ascii")}).encode()


def _is_pillow(image: Any) -> TypeGuard[Image]:
    """Whether it is one of Pillow's, which is not imported for that: whoever has such an image has imported it."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(image, pillow.Image)


def _to_png(image: Image) -> bytes:
    """Encodes a picture's pixels, upright."""
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(image)
    file = io.BytesIO()
    (upright if upright.mode in PNG_MODES else upright.convert("RGB")).save(file, "PNG")
    return file.getvalue()


def _encode_body(name: str, elements: Iterable[bytes]) -> bytes:
    """The JSON object with these elements under one name."""
    return b'{"%s": [%s]}' % (name.encode(), b",".join(elements))


def encoded_size(image: ImageLike | None, label: str = "") -> int:
    """Bytes of the encoded image, estimated without reading it."""
    if image is None:
        raw = 0
    elif isinstance(image, str | os.PathLike):
        path = Path(image)
        raw = path.stat().st_size if path.is_file() else 0  # reading it will fail
    elif _is_pillow(image):
        raw = image.width * image.height * len(image.getbands())
    else:
        raw = len(image) if isinstance(image, bytes) else cast("NDArray[np.uint8]", image).nbytes
    return 4 * -(-raw // 3) + 6 * len(label) + 32


def _find_faulty(error: ServiceError, sent: Sequence[int]) -> int | None:
    """Which of the images in the request is at fault; `sent` are indices of all images."""
    return sent[error.index] if isinstance(error.index, int) and 0 <= error.index < len(sent) else None


def _name_faulty(error: ServiceError, sent: Sequence[int], images: Mapping[int, Any]) -> ServiceError:
    """The error with the image's path or index in place of its position in the request.

    `sent` are indices of all images, of which `images` has those.
    """

    def name(index: int) -> str:
        return str(images[index]) if isinstance(images[index], str | os.PathLike) else f"images[{index}]"

    message, faulty = str(error), _find_faulty(error, sent)
    if faulty is not None:
        place, _, rest = message.partition(" ")
        whose = f"The label of {name(faulty)}" if error.field == "label" else name(faulty)
        message = f"{whose} {rest}" if place.endswith(f".{error.index}.{error.field}") else f"{whose}: {message}"
    elif len(sent) == 1 and error.status in TOO_MUCH:
        message = f"{name(sent[0])}: {message}"
    return error.with_message(message)


def _check_upload(images: int, labels: Sequence[str], key: str | None) -> list[str]:
    """The labels in the form under which the service knows them."""
    if not images:
        raise InputError("There are no images; give at least one.")
    if len(labels) != images:
        raise InputError(
            f"There are {images} images and {len(labels)} labels; give one label per image, or one for all."
        )
    for label in labels:
        if not isinstance(label, str):
            raise InputError(f"The label {label!r} is not a string; give labels as str, such as {str(label)!r}.")
    forms = {label: known_label(label) for label in labels}
    if key is not None and not re.fullmatch(f"[!-~]{{1,{KEY}}}", key):
        raise InputError(f"The key {key!r} cannot be sent; give 1 to {KEY} visible ASCII characters.")
    return [forms[label] for label in labels]


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
