"""Pictures from requests, as untrusted bytes, become images of the service's shape."""

from __future__ import annotations

import base64
import binascii
import io
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.data.images import Shape
from iblurry.live.http.header import SCANS, orientation, scans, webp_size, without_metadata
from iblurry.live.limits import Limits
from iblurry.live.refusal import Refusal

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MODES = {1: "L", 3: "RGB"}
TOGETHER = 4  # the pictures of one request may have this many times the pixels that one may have
THUMB = 64  # pixels of a thumbnail's longer side
log = logging.getLogger(__name__)


class Pictures:
    """Decodes the pictures of one request, the sizes in their headers first: a few bytes can claim a gigapixel.

    Only the first frame counts. It is turned upright, laid over white where it is transparent, converted to grey or
    colour and resized, whatever its aspect.
    """

    def __init__(self, shape: Shape, limits: Limits) -> None:
        self.shape, self.limits = shape, limits
        self.left = TOGETHER * limits.pixels

    def decode(self, raw: bytes, where: str) -> NDArray[np.uint8]:
        """(C, H, W) of one encoded picture; `where` names it in a refusal."""
        from PIL import Image

        channels, height, width = self.shape
        if channels not in MODES:
            raise Refusal(
                422,
                "raw_only",
                f"Pictures have 1 or 3 channels, this service takes {channels}; send raw pixels instead.",
            )
        try:
            image = self._decode(raw, where).convert(MODES[channels])
            pixels = np.asarray(_resized(image, width, height))
        except Refusal:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:  # its own limit, far above
            raise self._too_many(where) from error
        except Exception as error:  # a decoder fed with garbage raises whatever it stumbles over
            log.debug("A picture could not be decoded.", exc_info=error)
            raise Refusal(
                422,
                "unreadable_picture",
                f"{where} is not a readable picture: it is truncated, corrupt or of another kind; "
                "send a whole PNG, JPEG, WebP, GIF or BMP.",
            ) from error
        return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def _decode(self, raw: bytes, where: str) -> Image.Image:
        from PIL import Image

        if claimed := webp_size(raw):  # Pillow makes room for a WebP as soon as it is opened
            self._check(claimed, where)
        if scans(raw) > SCANS:
            raise Refusal(422, "too_many_scans", f"{where} is a JPEG of more than {SCANS} scans; save it anew.")
        picture: Image.Image
        with Image.open(io.BytesIO(without_metadata(raw)), formats=FORMATS) as picture:
            self._check(picture.size, where)
            if picture.format == "BMP" and picture.info.get("compression"):  # run lengths: unpacked in slow Python
                raise Refusal(422, "unreadable_picture", f"{where} is a compressed BMP; send a plain one, or a PNG.")
            picture.load()
            self.left -= picture.width * picture.height
            turn = orientation(raw, picture.info.get("exif"))
            plain = _opaque(picture)
        return plain.transpose(Image.Transpose(turn)) if turn is not None else plain

    def _check(self, size: tuple[int, int], where: str) -> None:
        count = size[0] * size[1]
        if count > self.limits.pixels:
            raise self._too_many(where)
        if count > self.left:
            raise Refusal(
                413,
                "too_many_pixels",
                f"The pictures of one request may have {TOGETHER * self.limits.pixels} pixels together; "
                "send fewer of them, or smaller ones.",
            )

    def _too_many(self, where: str) -> Refusal:
        return Refusal(413, "too_many_pixels", f"{where} has more than {self.limits.pixels} pixels; make it smaller.")


def unpack(raw: bytes, shape: Shape, limits: Limits, where: str) -> NDArray[np.uint8]:
    """(n, C, H, W) of raw bytes, as many images as they make."""
    each = shape[0] * shape[1] * shape[2]
    count, rest = divmod(len(raw), each)
    if rest or not count:
        raise Refusal(
            422,
            "wrong_size",
            f"{where} has {len(raw)} bytes, an image of this service ({'x'.join(map(str, shape))}) has {each}; "
            "send C*H*W bytes for each image.",
        )
    if count > limits.batch:
        raise Refusal(
            413, "too_many", f"{where} holds {count} images, a request may hold {limits.batch}; send several requests."
        )
    return np.frombuffer(raw, dtype=np.uint8).reshape(count, *shape)


def arrange(planes: object, shape: Shape, where: str) -> NDArray[np.uint8]:
    """(C, H, W) of nested lists of whole numbers from 0 to 255."""
    channels, height, width = shape
    lines = [line for plane in _list(planes, channels) for line in _list(plane, height)]
    if len(lines) != channels * height or not all(set(map(type, _list(line, width))) == {int} for line in lines):
        raise Refusal(
            422,
            "wrong_size",
            f"{where} is not of the service's shape; send {channels} channels of {height} rows of {width} numbers.",
        )
    try:
        return np.frombuffer(b"".join(map(bytes, lines)), dtype=np.uint8).reshape(shape)
    except ValueError as error:
        raise Refusal(422, "out_of_range", f"{where} has numbers below 0 or above 255; scale them.") from error


def _list(given: object, length: int) -> list[Any]:
    """The list, if it is one of this length."""
    return given if isinstance(given, list) and len(given) == length else []


def unbase64(text: object, where: str) -> bytes:
    """The bytes; only as an encoder writes them, without spaces or a `data:` in front."""
    try:
        raw = binascii.a2b_base64(text) if isinstance(text, str) else b""
    except ValueError:  # too few characters, or not ASCII
        raw = b""
    if binascii.b2a_base64(raw, newline=False).decode("ascii") != text:  # decoders pass over much
        raise Refusal(
            422, "bad_base64", f"{where} is not base64; send the standard alphabet with its padding and nothing else."
        )
    return raw


def thumbnail(pixels: NDArray[np.uint8]) -> str:
    """A data URI of a PNG no larger than 64 x 64 pixels."""
    from PIL import Image

    if len(pixels) == 3:
        image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    else:  # one channel, or several that are no colours: their mean
        image = Image.fromarray(pixels.mean(axis=0).astype(np.uint8))
    image.thumbnail((THUMB, THUMB))
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _opaque(picture: Image.Image) -> Image.Image:
    """Without transparency, and with eight bits for each colour."""
    from PIL import Image

    if picture.mode.startswith("I"):  # sixteen bits of grey, which Pillow would clip, not scale
        return Image.fromarray((np.asarray(picture) // 256).clip(0, 255).astype(np.uint8))
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        layers = picture.convert("RGBA")
        white = Image.new("RGBA", layers.size, "white")
        white.alpha_composite(layers)
        return white.convert("RGB")
    return picture.convert("L" if picture.mode in ("1", "L") else "RGB")


def _resized(image: Image.Image, width: int, height: int) -> Image.Image:
    from PIL import Image

    if image.size == (width, height):
        return image
    return image.resize((width, height), Image.Resampling.BILINEAR)  # over all pixels it covers: antialiased
