"""Images as JSON: paths, bytes of pictures and arrays, and which of them a refusal is about."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from iblurry.errors import DataError, InputError, ServiceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    ImageLike: TypeAlias = str | os.PathLike[str] | bytes | NDArray[np.uint8]  # path, picture's bytes, or (C, H, W)

JSON_HEADERS = {"Content-Type": "application/json"}
SAMPLES = 256  # of one request; the service's default limits, and where its own are lower it says so
BYTES = 15 * 2**20
TOO_MUCH = (408, 413)  # statuses of a request that is too long, or takes too long to send
FAULTY = re.compile(r"(?:samples|images)\.(\d+)\.(image|pixels|array|label)\b")  # at the start of a message


def list_images(images: ImageLike | Sequence[ImageLike]) -> list[ImageLike]:
    """The single images of whatever was given: one, several, or an array (N, C, H, W)."""
    if isinstance(images, str | os.PathLike | bytes):
        return [images]
    if isinstance(images, list | tuple):
        return [image for group in images for image in list_images(group)]
    import numpy as np

    array = np.asarray(images)
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise InputError(
            f"An image is a path, the bytes of a picture, or an array of bytes (uint8) of the shape (C, H, W) or "
            f"(N, C, H, W), not {array.dtype} of the shape {array.shape}."
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
    elif not isinstance(image, bytes):
        if image.shape != shape:
            raise InputError(f"The image has the shape {image.shape}, and this service takes (C, H, W) = {shape}.")
        form, raw = "pixels", image.tobytes()
    assert isinstance(raw, bytes)
    element = {} if label is None else {"label": label}
    return json.dumps(element | {form: base64.b64encode(raw).decode("ascii")}).encode()


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
    else:
        raw = len(image) if isinstance(image, bytes) else image.nbytes
    return 4 * -(-raw // 3) + 6 * len(label) + 32


def find_faulty(error: ServiceError) -> tuple[int, str] | None:
    """Which element of the request was refused, and what of it: "image", "label", ..."""
    found = FAULTY.match(str(error))
    return (int(found[1]), found[2]) if found else None


def name_faulty(error: ServiceError, sent: Sequence[int], name: Callable[[int], str]) -> ServiceError:
    """The error with the image's name in place of its position in the request; `sent` are indices of all images."""
    message, faulty = str(error), find_faulty(error)
    if faulty is not None and faulty[0] < len(sent):
        prefix = "The label of " if faulty[1] == "label" else ""
        message = prefix + name(sent[faulty[0]]) + FAULTY.sub("", message)
    elif len(sent) == 1 and error.status in TOO_MUCH:
        message = f"{name(sent[0])}: {message}"
    return error.with_message(message)


def image_name(image: Any, index: int) -> str:
    """Its path, or its index."""
    return str(image) if isinstance(image, str | os.PathLike) else f"images[{index}]"
