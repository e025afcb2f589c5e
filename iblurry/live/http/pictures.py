"""Untrusted bytes of a request become images of the service's shape: encoded pictures, raw pixels, nested lists."""

from __future__ import annotations

import base64
import io
import json
import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.images import Shape
from iblurry.data.picture import JPEG, MODES, open_upright, to_pixels
from iblurry.live.quota import BATCH, Limits, Refusal

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
REQUEST_PICTURES = 4  # all pictures of a request may have this many times the pixels that one may have
THUMBNAIL = 64  # pixels of a thumbnail's longer side
LOGGER = logging.getLogger(__name__)
SCANS = 100  # of a JPEG; each is a pass over all its pixels, a camera writes ten at most


class PictureDecoder:
    """Decodes the pictures of one request, after a look at the sizes their headers claim: a few bytes can claim much.

    The pixels are those of iblurry.data.picture, resized to `shape`. `limits.pixels` is the limit of one picture.
    """

    def __init__(self, shape: Shape, limits: Limits) -> None:
        self.shape, self.limits = shape, limits
        self.left = REQUEST_PICTURES * limits.pixels

    def decode(self, raw: bytes, where: str) -> NDArray[np.uint8]:
        """(C, H, W) of one encoded picture; `where` names it in a refusal."""
        from PIL import Image

        channels, height, width = self.shape
        if channels not in MODES:
            message = f"Pictures have 1 or 3 channels, this service takes {channels}; send raw pixels instead."
            raise Refusal(422, "raw_only", message, is_whole=True)
        try:
            return to_pixels(self._open(raw, where), channels, size=(width, height))
        except Refusal:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:  # Pillow's own limit
            raise self._too_many(where) from error
        except Exception as error:  # decoders raise all kinds of errors for corrupt data
            LOGGER.debug("A picture could not be decoded.", exc_info=error)
            message = f"{where} is not a readable picture; send a whole PNG, JPEG, WebP, GIF or BMP."
            raise Refusal(422, "unreadable_picture", message) from error

    def _open(self, raw: bytes, where: str) -> Image.Image:
        if claimed := webp_size(raw):  # Pillow allocates a WebP's pixels when it opens it
            self._check(claimed, where)
        if raw.startswith(JPEG) and raw.count(b"\xff\xda") > SCANS:  # an upper bound
            raise Refusal(422, "too_many_scans", f"{where} is a JPEG of more than {SCANS} scans; save it again.")

        def check(picture: Image.Image) -> None:
            self._check(picture.size, where)
            if picture.format == "BMP" and picture.info.get("compression"):  # run-length encoded: slow
                raise Refusal(422, "unreadable_picture", f"{where} is a compressed BMP; send a plain one, or a PNG.")

        picture = open_upright(raw, formats=FORMATS, check=check)
        self.left -= picture.width * picture.height
        return picture

    def _check(self, size: tuple[int, int], where: str) -> None:
        count = size[0] * size[1]
        if count > self.limits.pixels:
            raise self._too_many(where)
        if count > self.left:
            most = REQUEST_PICTURES * self.limits.pixels
            message = f"The pictures of one request may have {most} pixels together; send fewer, or smaller ones."
            raise Refusal(413, "too_many_pixels", message, is_whole=True)

    def _too_many(self, where: str) -> Refusal:
        return Refusal(413, "too_many_pixels", f"{where} has more than {self.limits.pixels} pixels; make it smaller.")


def unpack_pixels(raw: bytes, shape: Shape, where: str) -> NDArray[np.uint8]:
    """(n, C, H, W) of raw bytes, as many images as they make."""
    count, rest = divmod(len(raw), math.prod(shape))
    if rest or not count:
        size = f"{'x'.join(map(str, shape))} = {math.prod(shape)}"
        message = f"{where} has {len(raw)} bytes, and an image has {size}; send so many for each image."
        raise Refusal(422, "wrong_size", message)
    if count > BATCH:
        message = f"{where} holds {count} images, a request may hold {BATCH}; send several requests."
        raise Refusal(413, "too_many", message)
    return np.frombuffer(raw, dtype=np.uint8).reshape(count, *shape)


def parse_array(planes: object, shape: Shape, where: str) -> NDArray[np.uint8]:
    """(C, H, W) of nested lists of whole numbers from 0 to 255."""
    channels, height, width = shape
    lines = [line for plane in _list(planes, channels) for line in _list(plane, height)]
    if len(lines) != channels * height or not all(_list(line, width) for line in lines):
        message = f"{where} has another shape; send {channels} channels of {height} rows of {width} whole numbers."
        raise Refusal(422, "wrong_size", message)
    for line in lines:
        if set(map(type, line)) != {int}:
            shown = json.dumps(next(value for value in line if type(value) is not int))[:40]
            message = f"{where} has {shown}, which is not a whole number; send whole numbers from 0 to 255."
            raise Refusal(422, "wrong_type", message)
    try:
        return np.frombuffer(b"".join(map(bytes, lines)), dtype=np.uint8).reshape(shape)
    except ValueError as error:
        raise Refusal(422, "out_of_range", f"{where} has numbers below 0 or above 255; scale them.") from error


def _list(given: object, length: int) -> list[Any]:
    """`given` if it is a list of this length, else an empty one."""
    return given if isinstance(given, list) and len(given) == length else []


def thumbnail(pixels: NDArray[np.uint8] | None) -> str | None:
    """A data URI of a PNG no larger than 64 x 64 pixels; None of a sample without pixels."""
    if pixels is None:
        return None
    from PIL import Image

    if len(pixels) == 3:
        image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    else:  # one channel, or several that are not colours: their mean
        image = Image.fromarray(pixels.mean(axis=0).astype(np.uint8))
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def webp_size(raw: bytes) -> tuple[int, int] | None:
    """Width and height of a WebP, None for anything else."""
    if raw[:4] != b"RIFF" or raw[8:12] != b"WEBP" or len(raw) < 30:
        return None
    if raw[12:16] == b"VP8X":
        return int.from_bytes(raw[24:27], "little") + 1, int.from_bytes(raw[27:30], "little") + 1
    if raw[12:16] == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(raw[26:28], "little") & 0x3FFF, int.from_bytes(raw[28:30], "little") & 0x3FFF
