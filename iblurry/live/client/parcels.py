"""Images as a service takes them: paths, pictures and arrays become JSON, in parcels within its limits."""

from __future__ import annotations

import base64
import json
import os
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


def parcels(items: Iterable[bytes], most: int) -> Iterator[tuple[int, list[bytes]]]:
    """As many of them as one request takes, again and again, with the place of the first."""
    first, size = 0, 0
    parcel: list[bytes] = []
    for one in items:
        if parcel and (len(parcel) == most or size + len(one) > BYTES):
            yield first, parcel
            first, size, parcel = first + len(parcel), 0, []
        parcel.append(one)
        size += len(one) + 1
    if parcel:
        yield first, parcel


def halved(parcel: list[bytes], first: int, send: Callable[[list[bytes], int], Answer]) -> Iterator[Answer]:
    """Sends a parcel whose first item has this place; in halves, if the service takes less at a time."""
    try:
        yield send(parcel, first)
    except ServiceError as error:
        if error.status not in TOO_MUCH or len(parcel) == 1:
            raise
        middle = len(parcel) // 2
        yield from halved(parcel[:middle], first, send)
        yield from halved(parcel[middle:], first + middle, send)


def body(name: str, parcel: list[bytes]) -> bytes:
    """The JSON object with these items under one name."""
    return b'{"%s": [%s]}' % (name.encode(), b",".join(parcel))


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
