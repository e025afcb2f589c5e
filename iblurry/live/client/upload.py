"""An upload: images as JSON, in requests that are split where needed and repeated without harm."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, TypeVar, cast

from iblurry.data.labels import known_label
from iblurry.errors import DataError, InputError, ServiceError
from iblurry.live.client.http_client import HttpClient, retry
from iblurry.live.client.records import Receipt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    # A path, a picture's bytes, one of Pillow's, or (C, H, W)
    ImageLike: TypeAlias = str | os.PathLike[str] | bytes | Image | NDArray[np.uint8]

JSON_HEADERS = {"Content-Type": "application/json"}
SAMPLES = 256  # of one request; the service's default limits, and where its own are lower it says so
BYTES = 15 * 2**20
KEY = 180  # characters; the service takes 200, and the index of a request is appended
TOO_MUCH = (408, 413)  # statuses of a request that is too long, or takes too long to send
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")  # of Pillow's images; others are converted to RGB
REFUSED = (400, 409, 413, 422, 429, 507)  # statuses that say: nothing of this request was accepted, now or before
UNCLEAR = ("strange_answer", "mistake")  # codes of a proxy's answer, and of an internal error

Result = TypeVar("Result")


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
        http: HttpClient,
        images: ImageSequence,
        labels: Sequence[str],
        *,
        key: str,
        shape: tuple[int, ...],
        size: int,
        max_size: int,
        patience: float,
        skip_bad: bool,
        path: str = "/v1/learn",
    ) -> None:
        self._http, self._images, self._labels = http, images, labels
        self._key, self._shape, self._size, self._max_size = key, shape, size, max_size
        self._patience, self._skip_bad, self._path = patience, skip_bad, path
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
        body = encode_body("samples", encoded.values())
        unclear = self.unconfirmed == indices
        self._sent, self.unconfirmed = list(encoded), indices

        def post() -> dict[str, Any]:
            nonlocal unclear
            try:
                return self._http.call("POST", self._path, body, headers)
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
        return find_faulty(error, self._sent) if error.field == "image" else None

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


def list_images(images: ImageLike | Sequence[ImageLike]) -> list[ImageLike]:
    """The single images of whatever was given: one, several, or an array (N, C, H, W)."""
    if isinstance(images, str | os.PathLike | bytes) or _is_pillow(images):
        return [images]
    if isinstance(images, list | tuple):
        return [image for group in images for image in list_images(group)]
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


def encode_body(name: str, elements: Iterable[bytes]) -> bytes:
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


def find_faulty(error: ServiceError, sent: Sequence[int]) -> int | None:
    """Which of the images in the request is at fault; `sent` are indices of all images."""
    return sent[error.index] if isinstance(error.index, int) and 0 <= error.index < len(sent) else None


def name_faulty(error: ServiceError, sent: Sequence[int], name: Callable[[int], str]) -> ServiceError:
    """The error with the image's name in place of its position in the request; `sent` are indices of all images."""
    message, faulty = str(error), find_faulty(error, sent)
    if faulty is not None:
        place, _, rest = message.partition(" ")
        whose = f"The label of {name(faulty)}" if error.field == "label" else name(faulty)
        message = f"{whose} {rest}" if place.endswith(f".{error.index}.{error.field}") else f"{whose}: {message}"
    elif len(sent) == 1 and error.status in TOO_MUCH:
        message = f"{name(sent[0])}: {message}"
    return error.with_message(message)


def image_name(image: Any, index: int) -> str:
    """Returns the path of an image, or its index."""
    return str(image) if isinstance(image, str | os.PathLike) else f"images[{index}]"


def check_upload(images: int, labels: Sequence[str], key: str | None) -> list[str]:
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
