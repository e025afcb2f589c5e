"""Pictures of every kind become the service's shape; those that mean harm are refused with a sentence."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from iblurry.data.picture import find_transpose, strip_metadata
from iblurry.live.http.bodies import decode_base64
from iblurry.live.http.pictures import (
    FORMATS,
    SCANS,
    PictureDecoder,
    parse_array,
    thumbnail,
    unpack_pixels,
    webp_size,
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


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_of(width, height):
    """A PNG that claims a size and has no pixels."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def claiming(kind, width, height):
    """A picture whose header says a size it does not have."""
    raw = bytearray(picture(kind))
    if kind == "PNG":
        return png_of(width, height)
    if kind == "GIF":
        raw[6:10] = struct.pack("<HH", min(width, 65535), min(height, 65535))
    elif kind == "BMP":
        raw[18:26] = struct.pack("<ii", width, height)
    elif kind == "JPEG":
        at = raw.index(b"\xff\xc0") + 5
        raw[at : at + 4] = struct.pack(">HH", min(height, 65535), min(width, 65535))
    else:
        body = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        rest = bytes(raw[12:])
        raw = bytearray(b"RIFF" + struct.pack("<I", 22 + len(rest)) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4))
        raw += body + rest
    return bytes(raw)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_size_is_refused_before_it_is_believed(kind, monkeypatch):
    sizes = [(101, 100), (10000, 10000), (16383, 16383)]  # Pillow has nothing against it, warns, refuses
    claims = [claiming(kind, *size) for size in sizes]
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("it was decoded"))
    for raw in claims:
        with pytest.raises(Refusal, match="more than 10000 pixels") as no:
            decode(raw)
        assert (no.value.status, no.value.code) == (413, "too_many_pixels")


def test_a_webp_is_measured_before_pillow_makes_room_for_it(monkeypatch):
    monkeypatch.setattr(Image, "open", lambda *a, **k: pytest.fail("it was opened"))
    with pytest.raises(Refusal, match="more than 10000 pixels"):
        decode(claiming("WEBP", 16383, 16383))


@pytest.mark.parametrize("lossless", [True, False])
def test_the_size_of_a_webp(lossless):
    assert webp_size(encode(Image.new("RGB", (37, 21)), "WEBP", lossless=lossless)) == (37, 21)
    assert webp_size(encode(Image.new("RGBA", (37, 21)), "WEBP", lossless=lossless, exif=b"Exif\0\0II*\0")) == (37, 21)
    assert webp_size(picture("PNG")) is None


def test_many_pictures_together_may_not_be_a_bomb_either():
    pictures = PictureDecoder((3, 8, 6), SMALL)
    raw = encode(Image.new("RGB", (100, 100)), "PNG")
    for _ in range(4):
        pictures.decode(raw, "images.0.image")
    with pytest.raises(Refusal, match="40000 pixels together") as no:
        pictures.decode(raw, "images.4.image")
    assert no.value.status == 413


def test_a_jpeg_of_countless_scans():
    raw = picture("JPEG")
    at = raw.index(b"\xff\xda")
    scan = raw[at:-2]
    with pytest.raises(Refusal, match="scans"):
        decode(raw[:-2] + scan * SCANS + raw[-2:])


def test_a_compressed_bmp():
    raw = bytearray(encode(Image.new("P", (40, 30)), "BMP"))
    raw[30:34] = struct.pack("<I", 1)
    with pytest.raises(Refusal, match="compressed BMP"):
        decode(bytes(raw))


def test_metadata_is_not_read_at_all(recwarn):
    """With it, Pillow opens this JPEG with a warning for each of 5,000 entries."""
    entries = b"".join(struct.pack("<HHII", 1000 + i, 7, 65000, 0) for i in range(5000))
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 5000) + entries
    raw = picture("JPEG")
    at = 4 + int.from_bytes(raw[4:6], "big")
    bomb = raw[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + raw[at:]  # and no JFIF
    assert (decode(bomb) == decode(raw)).all()
    assert not recwarn.list


def test_without_metadata_the_pixels_are_the_same():
    exif = Image.Exif()
    exif[0x010E] = "a description"
    raw = encode(Image.fromarray(COLOURS), "JPEG", exif=exif, comment=b"a comment", icc_profile=b"x" * 300)
    bare = strip_metadata(raw)
    assert b"comment" not in bare
    assert b"description" not in bare
    assert len(bare) < len(raw) - 300
    assert (np.asarray(Image.open(io.BytesIO(bare))) == np.asarray(Image.open(io.BytesIO(raw)))).all()
    assert strip_metadata(bare) == bare
    assert strip_metadata(b"\xff\xd8\xff") == b"\xff\xd8\xff"


@pytest.mark.parametrize("kind", FORMATS)
def test_stumps_are_refused(kind):
    raw = picture(kind)
    for share in range(10):
        with pytest.raises(Refusal, match="readable picture") as no:
            decode(raw[: len(raw) * share // 10])
        assert (no.value.status, no.value.code) == (422, "unreadable_picture")


@pytest.mark.parametrize("kind", FORMATS)
def test_garbage_is_refused_or_is_a_picture(kind):
    rng, outcomes = np.random.default_rng(7), set()
    for _ in range(150):
        raw = bytearray(picture(kind, (12, 9)))
        for place in rng.integers(0, len(raw), rng.integers(1, 12)):
            raw[place] = rng.integers(256)
        try:
            outcomes.add(decode(bytes(raw)).shape)
        except Refusal as no:
            outcomes.add(no.status)
    assert outcomes - {413} == ({422} if kind == "PNG" else {(3, 8, 6), 422})  # a PNG has check sums


@pytest.mark.parametrize(
    "raw", [b"", b"\0", b"GIF89a", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.4", b"\xff\xd8\xff"]
)
def test_what_is_no_picture(raw):
    with pytest.raises(Refusal, match="send a whole PNG, JPEG, WebP, GIF or BMP"):
        decode(raw)


@pytest.mark.parametrize("kind", ["TIFF", "PPM", "ICO", "TGA"])
def test_formats_that_are_not_taken(kind):
    with pytest.raises(Refusal, match="not a readable picture"):
        decode(picture(kind))
