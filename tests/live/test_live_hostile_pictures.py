"""Pictures that mean harm, or are none: bombs, stumps and garbage are refused with a sentence."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from iblurry.data.picture import strip_metadata
from iblurry.live.http.pictures import FORMATS, SCANS, PictureDecoder, webp_size
from iblurry.live.quota import Refusal
from tests.live.test_live_pictures import COLOURS, SMALL, decode, encode, picture


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
