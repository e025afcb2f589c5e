"""Pictures of every kind become the service's shape; so do raw bytes and arrays."""

from __future__ import annotations

import base64
import io
import struct

import numpy as np
import pytest
from PIL import Image

from iblurry.data.picture import find_transpose
from iblurry.live.http.bodies import decode_base64
from iblurry.live.http.pictures import (
    FORMATS,
    PictureDecoder,
    parse_array,
    thumbnail,
    unpack_pixels,
)
from iblurry.live.quota import Limits, Refusal

COLOURS = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3) + 40  # 6 wide, 8 high
SMALL = Limits(pixels=10_000)


def encode(image, kind, **more):
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def decode(raw, shape=(3, 8, 6), limits=SMALL):
    return PictureDecoder(shape, limits).decode(raw, "The body")


def picture(kind, size=(40, 30)):
    rng = np.random.default_rng(3)
    return encode(Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)), kind)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_format_is_resized_over_all_its_pixels(kind, channels):
    raw = picture(kind)
    pixels = decode(raw, (channels, 3, 5))
    assert pixels.shape == (channels, 3, 5)
    assert pixels.dtype == np.uint8
    whole = np.asarray(Image.open(io.BytesIO(raw)).convert("RGB" if channels == 3 else "L"), dtype=float)
    assert abs(pixels.mean() - whole.mean()) < 12  # picked pixels of this noise would be far off
    assert pixels.std() < 40 < whole.std()


def test_an_orientation_in_the_other_byte_order_counts_and_a_broken_one_does_not():
    tiff = b"MM\0*" + struct.pack(">IHHHIHH", 8, 1, 0x0112, 3, 1, 6, 0)
    assert find_transpose(b"", b"Exif\0\0" + tiff) == Image.Transpose.ROTATE_270
    for broken in (b"", tiff[:7], tiff[:9], b"II" + tiff[2:], tiff[:4] + b"\xff\xff\xff\xff" + tiff[8:]):
        assert find_transpose(b"", broken) is None


def test_only_the_first_frame_counts():
    frames = [Image.new("RGB", (6, 8), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "WEBP"):
        raw = encode(
            frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
        )
        assert (decode(raw)[0] == 255).all()
        assert (decode(raw)[2] == 0).all()


def test_a_service_of_other_channels_takes_raw_pixels_only():
    with pytest.raises(Refusal, match="send raw pixels"):
        decode(picture("PNG"), (2, 4, 4))
    assert unpack_pixels(bytes(32), (2, 4, 4), "The body").shape == (1, 2, 4, 4)


def test_raw_bytes():
    images = unpack_pixels(bytes(range(96)), (3, 4, 4), "The body")
    assert images.shape == (2, 3, 4, 4)
    assert images[1, 2, 3, 3] == 95
    for raw in (b"", bytes(47), bytes(49)):
        with pytest.raises(Refusal, match="3x4x4 = 48") as no:
            unpack_pixels(raw, (3, 4, 4), "The body")
        assert no.value.status == 422
    with pytest.raises(Refusal, match="holds 257 images") as no:
        unpack_pixels(bytes(48 * 257), (3, 4, 4), "The body")
    assert no.value.status == 413


def test_arrays():
    rows = [[[0, 255], [7, 8]]]
    assert parse_array(rows, (1, 2, 2), "array").tolist() == rows
    for wrong in ([], None, 3, "x", {}, [[[0, 255], [7]]], [[[0, 255]]], [rows[0], rows[0]], [[[0, 255], "ab"]]):
        with pytest.raises(Refusal, match="1 channels of 2 rows of 2"):
            parse_array(wrong, (1, 2, 2), "array")
    for value in (-1, 256, 10**30):
        with pytest.raises(Refusal, match="below 0 or above 255"):
            parse_array([[[0, 255], [7, value]]], (1, 2, 2), "array")


@pytest.mark.parametrize(
    "text",
    [
        "QUJ",
        "QUI",
        "QUJD\n",
        " QUJD",
        "QUJD=",
        "QU-_",
        "====",
        "data:image/png;base64,QUJD",
        "QUI=QUJD",
        "ÄÖÜß",
        7,
        None,
        [],
    ],
)
def test_base64_that_is_none(text):
    with pytest.raises(Refusal, match="not base64"):
        decode_base64(text)


def test_base64():
    assert decode_base64("QUJD") == b"ABC"
    assert decode_base64("QUI=") == b"AB"
    assert decode_base64("") == b""


@pytest.mark.parametrize("shape", [(1, 8, 6), (3, 8, 6), (2, 8, 6), (3, 200, 100)])
def test_thumbnails_are_small_pngs(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    head, _, data = thumbnail(pixels).partition(",")
    assert head == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.format == "PNG"
    assert image.size == ((32, 64) if shape[1] == 200 else (6, 8))
    if shape == (3, 8, 6):
        assert (np.asarray(image) == pixels.transpose(1, 2, 0)).all()
