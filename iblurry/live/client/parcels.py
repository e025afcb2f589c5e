"""Images as a service takes them: paths, pictures and arrays become JSON, in requests within its limits."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from iblurry.errors import DataError, InputError, ServiceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Image: TypeAlias = str | os.PathLike[str] | bytes | NDArray[np.uint8]  # a path, a picture's bytes, or (C, H, W)

SAMPLES = 256  # of one request; the service's usual limits, and where its own are lower it says so
BYTES = 15 * 2**20
TOO_MUCH = (408, 413)  # statuses of a request that is too long, or takes too long to send
BLAMED = re.compile(r"(?:samples|images)\.(\d+)\.(image|pixels|array|label)\b")  # at the beginning of a sentence

Answer = TypeVar("Answer")


def one_by_one(images: Image | Sequence[Image]) -> list[Image]:
    """The images of whatever was given: one, several, or an array (N, C, H, W)."""
    if isinstance(images, str | os.PathLike | bytes):
        return [images]
    if isinstance(images, list | tuple):
        return [one for each in images for one in one_by_one(each)]
    array = _array(images)
    return [array] if array.ndim == 3 else list(array)


def item(image: Image, shape: tuple[int, ...], label: str | None = None) -> bytes:
    """One element of a request's JSON; an array has to have the service's shape (C, H, W)."""
    labelled = {} if label is None else {"label": label}
    if isinstance(image, str | os.PathLike):
        return _json(labelled | {"image": _text(_read(Path(image)))})
    if isinstance(image, bytes):
        return _json(labelled | {"image": _text(image)})
    if image.shape != shape:
        raise InputError(f"The image has the shape {image.shape}, and this service takes (C, H, W) = {shape}.")
    return _json(labelled | {"pixels": _text(image.tobytes())})


def weight(image: Image | None, label: str = "") -> int:
    """Bytes that its item will have, found without reading it."""
    if image is None:
        raw = 0
    elif isinstance(image, str | os.PathLike):
        path = Path(image)
        raw = path.stat().st_size if path.is_file() else 0  # whoever reads it says that it is none
    else:
        raw = len(image) if isinstance(image, bytes) else image.nbytes
    return 4 * -(-raw // 3) + 6 * len(label) + 32


def in_halves(
    places: range, send: Callable[[range], Answer], *, weight: Callable[[int], int], most: int
) -> Iterator[Answer]:
    """Sends what is at these places; in halves where it is too much, or where the service knows a part by its key.

    Halves of halves lie where they always do, so what was accepted in parts is met again in the same parts.
    """
    if len(places) == 1:
        yield send(places)
        return
    if len(places) <= most and sum(map(weight, places)) <= BYTES:
        try:
            answer = send(places)
        except ServiceError as error:
            if not _divides(error):
                raise
        else:
            yield answer
            return
    middle = len(places) // 2
    for half in (places[:middle], places[middle:]):
        yield from in_halves(half, send, weight=weight, most=most)


def blamed(error: ServiceError) -> tuple[int, str] | None:
    """Which item of the request the service found wrong, and what of it: "image", "label", ..."""
    found = BLAMED.match(str(error))
    return (int(found[1]), found[2]) if found else None


def named(error: ServiceError, sent: Sequence[int], name: Callable[[int], str]) -> ServiceError:
    """The same with the name of the image that it is about, which the service knows by its place in a request alone."""
    sentence, about = str(error), blamed(error)
    if about is not None and about[0] < len(sent):
        whose = "The label of " if about[1] == "label" else ""
        sentence = whose + name(sent[about[0]]) + BLAMED.sub("", sentence)
    elif len(sent) == 1 and error.status in TOO_MUCH:
        sentence = f"{name(sent[0])}: {sentence}"
    return ServiceError(sentence, status=error.status, code=error.code, retry_after=error.retry_after)


def name_of(image: Any, place: int) -> str:
    """Its path, or its place."""
    return str(image) if isinstance(image, str | os.PathLike) else f"images[{place}]"


def body(name: str, items: Iterable[bytes]) -> bytes:
    """The JSON object with these items under one name."""
    return b'{"%s": [%s]}' % (name.encode(), b",".join(items))


def _divides(error: ServiceError) -> bool:
    """Whether it may not be said of a half."""
    return blamed(error) is None and (error.status in TOO_MUCH or error.code == "key_reused")


def _array(images: Any) -> NDArray[np.uint8]:
    import numpy as np

    array = np.asarray(images)
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise InputError(
            f"An image is a path, the bytes of a picture, or an array of bytes (uint8) of the shape (C, H, W) or "
            f"(N, C, H, W), not {array.dtype} of the shape {array.shape}."
        )
    return array


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); give the path of a picture.") from error


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _json(value: dict[str, str]) -> bytes:
    return json.dumps(value).encode()
