"""The one decoder of pictures: folders, tables, ImageNet, the live service and the command line all decode here.

Bytes or an open picture become bytes (C, H, W), C being 1 (grey) or 3 (RGB), by these rules and in this order:

- only the first frame counts, and it is turned upright by the orientation in its EXIF or XMP data;
- sixteen bits of grey (Pillow's modes I;16 and I) are scaled by their full range, 0 to 65535: value // 256, which is
  also what Pillow makes of sixteen bits per colour;
- what is transparent (an alpha channel, a palette's or a PNG's transparent colour) is laid over white;
- palettes, one bit, CMYK and YCbCr become grey or RGB as Pillow converts them;
- resizing is bilinear over all pixels that a new pixel covers, whatever the aspect.

Only FORMATS are opened, whatever a file is called: Pillow hands an EPS, also one inside an IPTC file, to Ghostscript.
The metadata of a JPEG is read here and not by Pillow, which reads all EXIF data when it opens one: a file of 64 kB made
5,000 lines of warnings with Pillow 13, and copies of the file for each of 5,000 entries before that.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iblurry.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

# What is opened: pictures that Pillow and its libraries decode in this process.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
MODES = {1: "L", 3: "RGB"}  # Pillow's names, by the number of channels
_GREY = ("1", "L", "LA", "La")  # modes without colour; so are those of sixteen bits
_ALPHA = ("RGBA", "LA", "PA", "RGBa")
_ORIENTATION = 0x0112
_TRANSPOSE = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # an EXIF orientation -> the PIL.Image.Transpose that undoes it
JPEG = b"\xff\xd8\xff"
_SIDEWAYS = (2, 4, 5, 6)  # those of them that change width and height
EXIF, XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"  # how the data of a JPEG's segment begin
_KEPT = {0xE0, 0xEE}  # JFIF, and Adobe's colour transform
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
_SCAN = 0xDA


def decode(
    raw: bytes, name: str, channels: int | None = None, *, size: tuple[int, int] | None = None
) -> NDArray[np.uint8]:
    """(channels, H, W) of an encoded picture in one of FORMATS.

    Parameters
    ----------
    raw : bytes
        The content of a picture file.
    name : str
        What a DataError calls it.
    channels : {1, 3}, optional
        Grey or RGB; 1 for a grey picture and 3 for others unless given.
    size : tuple of int, optional
        (width, height) to resize to; its own unless given.
    """
    with _named_errors(name):
        return to_pixels(open_upright(raw), channels, size=size)


def upright_size(raw: bytes, name: str) -> tuple[int, int]:
    """(width, height) of an encoded picture once it is upright; its pixels are not decoded."""
    with _named_errors(name), _open(raw) as picture:
        turn = find_transpose(raw, *_find_metadata(picture.info))
        return picture.size[::-1] if turn in _SIDEWAYS else picture.size


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """DataError for whatever a damaged picture raises."""
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        # Pillow's own message would name the BytesIO object instead of the file
        why, remedy = str(error), "replace it with a good copy or remove it"
        if isinstance(error, UnidentifiedImageError):
            why, remedy = f"not one of {', '.join(FORMATS)}", "save it as one of these or remove it"
        raise DataError(f"{name} is not a readable picture ({why}); {remedy}.") from error


def open_upright(
    raw: bytes, *, formats: tuple[str, ...] | None = None, check: Callable[[Image.Image], None] | None = None
) -> Image.Image:
    """The first frame, upright; `check` is called with its header read and none of its pixels, and may raise.

    `formats` are FORMATS unless given.
    """
    with _open(raw, formats) as picture:
        if check is not None:
            check(picture)
        return turn_upright(picture, raw).copy()


def _open(raw: bytes, formats: tuple[str, ...] | None = None) -> Image.Image:
    from PIL import Image

    if formats is None:
        Image.init()  # a Pillow that was built without AVIF does not know the name
        formats = tuple(name for name in FORMATS if name in Image.OPEN)
    return Image.open(io.BytesIO(strip_metadata(raw)), formats=formats)


def turn_upright(picture: Image.Image, raw: bytes = b"") -> Image.Image:
    """An open picture, upright; `raw` is its file if Pillow has not seen the metadata of it."""
    from PIL import Image

    if picture.format not in (None, "MPO", *FORMATS):  # opened by the user, and not read yet; an MPO is a JPEG
        raise ValueError(f"{picture.format}, not one of {', '.join(FORMATS)}")
    picture.load()  # a TIFF turns itself upright then
    turn = find_transpose(raw, *_find_metadata(picture.info))
    return picture if turn is None else picture.transpose(Image.Transpose(turn))


def to_pixels(
    picture: Image.Image, channels: int | None = None, *, size: tuple[int, int] | None = None
) -> NDArray[np.uint8]:
    """(channels, H, W), contiguous, of an open picture; arguments as for `decode`."""
    from PIL import Image

    channels = channels or (1 if picture.mode in _GREY or picture.mode.startswith("I") else 3)
    plain = _flatten(picture).convert(MODES[channels])
    if size is not None and plain.size != size:
        plain = plain.resize(size, Image.Resampling.BILINEAR)
    pixels = np.asarray(plain)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def resize(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """(C, H, W) of any number of channels resized to (width, height) as a picture is."""
    from PIL import Image

    if image.shape[:0:-1] == size:
        return image
    return np.concatenate([to_pixels(Image.fromarray(np.ascontiguousarray(plane)), 1, size=size) for plane in image])


def _flatten(picture: Image.Image) -> Image.Image:
    """Grey or RGB, with eight bits for each colour and without transparency."""
    from PIL import Image

    clear = picture.info.get("transparency")
    if picture.mode.startswith("I"):  # Pillow would clip it, not scale it
        values = np.asarray(picture)
        grey = (values // 256).clip(0, 255).astype(np.uint8)
        if isinstance(clear, int):
            grey[values == clear] = 255
        return Image.fromarray(grey)
    if picture.mode == "La":  # Pillow converts it in two steps only
        picture = picture.convert("LA")
    if picture.mode in _ALPHA or clear is not None:
        layers = picture.convert("RGBA")
        white = Image.new("RGBA", layers.size, "white")
        white.alpha_composite(layers)
        return white.convert("RGB")
    return picture.convert("L" if picture.mode in _GREY else "RGB")


def strip_metadata(raw: bytes) -> bytes:
    """A JPEG without the segments that say nothing about its pixels; anything else as it is."""
    if not raw.startswith(JPEG):
        return raw
    kept, end = [raw[:2]], 2
    for kind, start, end in _segments(raw):
        if kind in _KEPT or not (0xE0 <= kind <= 0xEF or kind == 0xFE):
            kept.append(raw[start:end])
    return b"".join([*kept, raw[end:]])


def _find_metadata(info: dict[Any, Any]) -> tuple[bytes | None, bytes | None]:
    """The EXIF and XMP data that Pillow found in a picture that is no JPEG."""
    exif, xmp = info.get("exif"), info.get("XML:com.adobe.xmp") or info.get("xmp")
    if exif is None and "Raw profile type exif" in info:  # how programs wrote it before PNG had a place for it
        with suppress(ValueError):
            exif = bytes.fromhex("".join(info["Raw profile type exif"].split("\n")[3:]))
    return exif, xmp.encode() if isinstance(xmp, str) else xmp


def find_transpose(raw: bytes, exif: bytes | None, xmp: bytes | None = None) -> int | None:
    """The PIL.Image.Transpose that turns a picture upright; `exif` and `xmp` are what Pillow found in another format.

    XMP data count where EXIF data say nothing, as in Pillow.
    """
    if raw.startswith(JPEG):
        found = [raw[start + 4 : end] for kind, start, end in _segments(raw) if kind == 0xE1]
        exif, xmp = (next((data for data in found if data.startswith(head)), None) for head in (EXIF, XMP))
    orientation = _read_orientation(exif.removeprefix(EXIF)) if exif else 0
    if not orientation and xmp and (match := re.search(rb'tiff:Orientation(?:="|>)([0-9])', xmp)):
        orientation = int(match[1])
    return _TRANSPOSE.get(orientation)


def _segments(raw: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, start and end of each segment before a JPEG's first scan."""
    start = 2
    while start + 4 <= len(raw) and raw[start] == 0xFF:
        kind = raw[start + 1]
        if kind == _SCAN:
            return
        if kind == 0xFF:  # a fill byte
            start += 1
            continue
        end = start + 2 if kind in _ALONE else start + 2 + int.from_bytes(raw[start + 2 : start + 4], "big")
        yield kind, start, min(end, len(raw))
        start = end


def _read_orientation(tiff: bytes) -> int:
    """The tag in the first directory of EXIF data, 0 if there is none."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 0
    try:
        (at,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, at)
        for entry in range(at + 2, at + 2 + 12 * count, 12):
            tag, kind, number, value = struct.unpack_from(f"{order}HHIH", tiff, entry)
            if tag == _ORIENTATION and kind == 3 and number == 1:
                return int(value)
    except struct.error:  # it ends before that
        return 0
    return 0
