"""An upload: samples on their way to a service, in requests that are split where needed and repeated without harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from iblurry.errors import DataError, ServiceError
from iblurry.live.client.encoding import (
    BYTES,
    JSON_HEADERS,
    TOO_MUCH,
    encode_body,
    encode_image,
    encoded_size,
    find_faulty,
    image_name,
    name_faulty,
)
from iblurry.live.client.http_client import retry

if TYPE_CHECKING:
    from iblurry.live.client.encoding import ImageLike

REFUSED = (400, 409, 413, 422, 429, 507)  # statuses that say: nothing of this request was accepted, now or before
UNCLEAR = ("strange_answer", "mistake")  # codes of a proxy's answer, and of an internal error

Result = TypeVar("Result")


@dataclass(frozen=True)
class Receipt:
    """Samples that are on the service's disk and will be learnt.

    Parameters
    ----------
    accepted : int
        How many.
    first, last : int
        Numbers of the first and the last one, from 1; with other clients, not all between them are ours.
    repeated : int
        How many had been accepted before, under the same key.
    """

    accepted: int
    first: int
    last: int
    repeated: int


class ImageSequence(Protocol):
    """Paths, bytes of pictures and arrays (C, H, W), each made when it is due; DataError where one cannot be read."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> ImageLike: ...


class Upload:
    """Sends labelled images in requests of a fixed number of samples, or of a half of it, a quarter, ...

    Each request has an idempotency key made of `key` and the index of its first sample. So the same samples under the
    same key meet the requests in which they were accepted, whatever the service's limits were then, and count once. A
    sample that is skipped keeps its index.

    Parameters
    ----------
    post : callable
        Sends a body with headers to /v1/learn and returns the answer.
    images : ImageSequence
        What to send.
    labels : sequence of str
        One for each image.
    key : str
        Prefix of the idempotency keys.
    shape : tuple of int
        (C, H, W) of an array.
    size : int
        Samples of a request.
    max_size : int
        Requests of more samples than this are split at once.
    patience : float
        Seconds to retry while the service is busy or away.
    skip_bad : bool
        Skip pictures that cannot be read.
    """

    def __init__(
        self,
        post: Callable[[bytes, dict[str, str]], dict[str, Any]],
        images: ImageSequence,
        labels: Sequence[str],
        *,
        key: str,
        shape: tuple[int, ...],
        size: int,
        max_size: int,
        patience: float,
        skip_bad: bool = False,
    ) -> None:
        self._post, self._images, self._labels = post, images, labels
        self._key, self._shape, self._size, self._max_size = key, shape, size, max_size
        self._patience, self._skip_bad = patience, skip_bad
        self._pending: dict[int, ImageLike | None] = {}
        self._sent: list[int] = []  # indices in the last request
        self._answers: list[dict[str, Any]] = []
        self.skipped: list[int] = []
        self.failed_at: int | None = None  # index of the picture that could not be read
        self.unconfirmed = range(0)  # indices of a request that got no answer

    def send(self, on_request: Callable[[], None] | None = None) -> None:
        """Send all of them; `on_request` is called after each request."""
        for first in range(0, len(self._images), self._size):
            indices = range(first, min(first + self._size, len(self._images)))
            self._pending = {index: self._read(index, partial(self._images.__getitem__, index)) for index in indices}
            try:
                for _ in send_in_halves(indices, self._request, size=self._encoded_size, limit=self._max_size):
                    if on_request is not None:
                        on_request()
            except ServiceError as error:
                if (faulty := find_faulty(error)) is not None and faulty[1] == "image":
                    self.failed_at = self._sent[faulty[0]]
                raise name_faulty(error, self._sent, lambda index: image_name(self._pending[index], index)) from error

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
        """Of what was accepted so far, at least one sample."""
        repeated = sum(answer["accepted"] for answer in self._answers if answer["repeated"])
        return Receipt(self.accepted, self._answers[0]["first"], self._answers[-1]["last"], repeated)

    def _request(self, indices: range) -> None:
        encoded = {index: element for index in indices if (element := self._encode(index)) is not None}
        if not encoded:
            return
        # By the index alone: other content in a request at the same index is refused by the service.
        headers = JSON_HEADERS | {"Idempotency-Key": f"{self._key}:{indices.start}" if indices.start else self._key}
        body = encode_body("samples", encoded.values())
        unclear = self.unconfirmed == indices
        self._sent, self.unconfirmed = list(encoded), indices

        def post() -> dict[str, Any]:
            nonlocal unclear
            try:
                return self._post(body, headers)
            except ServiceError as error:
                unclear |= error.status is None or error.code in UNCLEAR
                raise

        try:
            answer = retry(self._patience, post)
        except ServiceError as error:
            if error.status in REFUSED or not unclear:
                self.unconfirmed = range(0)
            faulty = find_faulty(error)
            if faulty is None or faulty[1] != "image" or not self._skip_bad:
                raise
            self._skip(self._sent[faulty[0]])
            self._request(indices)
        else:
            self.unconfirmed = range(0)
            self._answers.append(answer)

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

    def _encoded_size(self, index: int) -> int:
        return encoded_size(self._pending[index], self._labels[index])


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
            if find_faulty(error) is not None or not (error.status in TOO_MUCH or error.code == "key_reused"):
                raise  # a half would be refused, too
        else:
            yield answer
            return
    middle = len(indices) // 2
    for half in (indices[:middle], indices[middle:]):
        yield from send_in_halves(half, send, size=size, limit=limit)
