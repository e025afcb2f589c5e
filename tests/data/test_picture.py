"""One decoder: every kind of picture has the same pixels in a folder, in ImageNet, in the service and in the client."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageOps, PngImagePlugin

import iblurry
from iblurry.cli.live import samples
from iblurry.data.dataset import Dataset
from iblurry.data.picture import FORMATS, decode, resize, to_pixels
from iblurry.data.sources.folder import folder, imagenet
from iblurry.errors import DataError
from iblurry.live.http.bodies import BodyReader
from iblurry.live.quota import Limits

RNG = np.random.default_rng(4)
COLOURS = RNG.integers(0, 256, (6, 6, 3), dtype=np.uint8)
LAYERS = RNG.integers(0, 256, (6, 6, 4), dtype=np.uint8)
DEEP = RNG.integers(0, 65536, (6, 6), dtype=np.uint16)


def encode(picture: Image.Image, kind: str = "PNG", **more: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **more)
    return file.getvalue()


def over_white(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    share = alpha[..., None] / 255
    return colour * share + 255 * (1 - share)


def palette(**more: object) -> bytes:
    picture = Image.fromarray(np.arange(36, dtype=np.uint8).reshape(6, 6) % 4, "P")
    picture.putpalette([10, 20, 30, 200, 100, 0, 0, 0, 0, 255, 255, 255])
    return encode(picture, **more)


def turned(kind: str, **more: object) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(Image.fromarray(COLOURS), kind, exif=exif, **more)


def xmp(kind: str) -> bytes:
    text = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    if kind == "PNG":
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", text)
        return encode(Image.fromarray(COLOURS), pnginfo=info)
    return encode(Image.fromarray(COLOURS), kind, xmp=text.encode())


def raw_profile() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    info = PngImagePlugin.PngInfo()
    data = exif.tobytes()
    info.add_text("Raw profile type exif", f"\nexif\n{len(data):8}\n{data.hex()}\n")
    return encode(Image.fromarray(COLOURS), pnginfo=info)


PICTURES = {
    "RGB": encode(Image.fromarray(COLOURS)),
    "L": encode(Image.fromarray(COLOURS[..., 0])),
    "1": encode(Image.fromarray(COLOURS[..., 0] > 99)),
    "I;16": encode(Image.fromarray(DEEP)),
    "I;16 with a transparent value": encode(Image.fromarray(DEEP), transparency=int(DEEP[2, 3])),
    "RGBA": encode(Image.fromarray(LAYERS)),
    "LA": encode(Image.fromarray(LAYERS[..., 2:].copy(), "LA")),
    "P": palette(),
    "P with a transparent colour": palette(transparency=1),
    "P with levels of transparency": palette(transparency=b"\xff\x00\x80"),
    "RGB with a transparent colour": encode(Image.fromarray(COLOURS), transparency=tuple(map(int, COLOURS[0, 0]))),
    "L with a transparent value": encode(Image.fromarray(COLOURS[..., 0]), transparency=int(COLOURS[1, 1, 0])),
    "CMYK": encode(Image.fromarray(COLOURS).convert("CMYK"), "JPEG", quality=95),
    "YCbCr": encode(Image.fromarray(COLOURS), "JPEG", quality=95),
    "GIF": encode(Image.fromarray(COLOURS).quantize(16), "GIF", transparency=3),
    "BMP": encode(Image.fromarray(COLOURS), "BMP"),
    "WebP with alpha": encode(Image.fromarray(LAYERS), "WEBP", lossless=True),
    "EXIF in a JPEG": turned("JPEG", quality=95),
    "EXIF in a PNG": turned("PNG"),
    "EXIF in a WebP": turned("WEBP", lossless=True),
    "XMP in a JPEG": xmp("JPEG"),
    "XMP in a PNG": xmp("PNG"),
    "raw profile in a PNG": raw_profile(),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", PICTURES)
def test_pixels_are_the_same_everywhere(name, channels, tmp_path, monkeypatch):
    raw, shape = PICTURES[name], (channels, 4, 4)
    file = tmp_path / "train" / "a" / "0.png"
    for part in ("train", "val"):
        (tmp_path / part / "a").mkdir(parents=True)
        (tmp_path / part / "a" / "0.png").write_bytes(raw)
    expected = decode(raw, name, channels, size=(4, 4))
    assert expected.shape == shape
    assert expected.flags.c_contiguous
    for lazy in (False, True):
        np.testing.assert_array_equal(folder(tmp_path, size=4, channels=channels, lazy=lazy).train.images[0], expected)
    if channels == 3:
        np.testing.assert_array_equal(imagenet(tmp_path, size=4).test.images[0], expected)
    (served,) = BodyReader(shape, Limits()).read_images("image/png", raw)
    np.testing.assert_array_equal(served, expected)
    monkeypatch.setattr(samples, "_too_large", lambda path: True)  # then `send` and `ask` decode it themselves
    np.testing.assert_array_equal(samples.fit(file, shape), expected)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_are_scaled_by_their_full_range(kind):
    ramp = Image.fromarray(np.arange(65536, dtype=np.uint16).reshape(256, 256))
    pixels = decode(encode(ramp, kind), "ramp")
    assert (pixels == np.repeat(np.arange(256), 256).reshape(1, 256, 256)).all()
    assert (decode(encode(ramp.convert("I"), "TIFF"), "ramp") == pixels).all()
    deep = decode(PICTURES["I;16 with a transparent value"], "deep", 1)
    assert (deep[0] == np.where(DEEP[2, 3] == DEEP, 255, DEEP // 256)).all()


def test_what_is_transparent_is_laid_over_white():
    for name, colour, alpha in (
        ("RGBA", LAYERS[..., :3], LAYERS[..., 3]),
        ("WebP with alpha", LAYERS[..., :3], LAYERS[..., 3]),
        ("LA", LAYERS[..., [2, 2, 2]], LAYERS[..., 3]),
        ("RGB with a transparent colour", COLOURS, 255 * (COLOURS[0, 0] != COLOURS).any(axis=2)),
        ("L with a transparent value", COLOURS[..., [0, 0, 0]], 255 * (COLOURS[..., 0] != COLOURS[1, 1, 0])),
    ):
        pixels = decode(PICTURES[name], name, 3).transpose(1, 2, 0)
        assert np.abs(pixels - over_white(colour, alpha)).max() <= 1, name
    clear = decode(PICTURES["P with levels of transparency"], "palette", 3)
    assert clear[:, 0, 0].tolist() == [10, 20, 30]
    assert clear[:, 0, 1].tolist() == [255, 255, 255]
    assert clear[:, 0, 2].tolist() == [127, 127, 127]


@pytest.mark.parametrize("name", [name for name in PICTURES if name[:3] in ("EXI", "XMP", "raw")])
def test_a_picture_is_turned_upright(name):
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(PICTURES[name])))
    assert (decode(PICTURES[name], name, 3) == np.asarray(expected).transpose(2, 0, 1)).all()
    if "JPEG" not in name:
        assert (np.asarray(expected) == np.rot90(COLOURS, -1)).all()


def test_a_tiff_is_turned_upright_once():
    assert (decode(turned("TIFF"), "it", 3) == np.rot90(COLOURS, -1).transpose(2, 0, 1)).all()


@pytest.mark.parametrize(
    "name, channels", [("L", 1), ("1", 1), ("I;16", 1), ("LA", 1), ("RGB", 3), ("P", 3), ("CMYK", 3)]
)
def test_a_grey_picture_has_one_channel_unless_told(name, channels):
    assert len(decode(PICTURES[name], name)) == channels


def test_premultiplied_alpha():
    for mode in ("La", "RGBa"):
        alpha = Image.new("LA" if mode == "La" else "RGBA", (2, 2), (0,) * len(mode))
        assert (to_pixels(alpha.convert(mode), 3) == 255).all()


def test_planes_are_resized_as_pictures_are():
    planes = COLOURS.transpose(2, 0, 1)
    assert (resize(planes, (4, 3)) == to_pixels(Image.fromarray(COLOURS), 3, size=(4, 3))).all()
    assert resize(np.concatenate([planes, planes]), (4, 3)).shape == (6, 3, 4)
    assert resize(planes, (6, 6)) is planes


def test_what_is_no_picture_is_named():
    for raw in (b"", b"text", PICTURES["RGB"][:50]):
        with pytest.raises(DataError, match=r"some\.png"):
            decode(raw, "some.png")


def test_pillow_opens_pictures_in_one_place():
    """And in another one to read the size in a header."""
    root = Path(iblurry.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if "Image.open(" in path.read_text()}
    assert found == {"data/picture.py", "cli/live/samples.py"}


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def iptc(inside: bytes) -> bytes:
    """A picture inside an IPTC file: Pillow opens it as whatever it is."""
    fields = [(3, 60, b"\x01\x00"), (3, 20, b"\x00\x08"), (3, 30, b"\x00\x08"), (3, 120, b"\x05"), (8, 10, inside)]
    return b"".join(bytes([28, kind, tag]) + len(data).to_bytes(2, "big") + data for kind, tag, data in fields)


def written(kind: str) -> bytes | None:
    """A file of this format, as Pillow writes it; None of those that it writes for nobody."""
    for mode in ("RGB", "P", "1", "F"):
        try:
            return encode(Image.new(mode, (16, 16)), kind)
        except (OSError, ValueError, KeyError, AttributeError):
            continue
    return None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of formats that a later Pillow will not know
def test_no_picture_starts_a_program(tmp_path, monkeypatch):
    """Every format of Pillow, named .png: what is not on the list is refused with its name, the list and no program."""
    marker = tmp_path / "marker"
    for program in ("gs", "djpeg", "cjpeg", "ppmtogif"):
        (tmp_path / program).write_text(f"#!/bin/sh\necho {program} >> {marker}\nexit 0\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow looks for it once
    Image.init()
    files = {kind: raw for kind in Image.SAVE if (raw := written(kind))} | {"EPS": EPS, "IPTC": iptc(EPS)}
    assert files.keys() > {*FORMATS, "EPS", "ICO", "PCX", "TGA"}
    for kind, raw in files.items():
        name = f"{kind}.png"
        if kind in (*FORMATS, "MPO"):  # which is a JPEG
            assert decode(raw, name).shape[1:] == (16, 16)
            continue
        with pytest.raises(DataError, match=rf"^{name} is not a readable .*not one of PNG, JPEG, .*save it as"):
            decode(raw, name)
    for raw in (EPS, iptc(EPS)):  # opened by the user, as a torch data set may, and not read yet
        opened = Image.open(io.BytesIO(raw))
        with pytest.raises(DataError, match="train"):
            Dataset.from_torch([(opened, 0)], None)
    assert not marker.exists()
    with Image.open(io.BytesIO(iptc(EPS))) as picture, suppress(OSError):
        picture.load()
    assert marker.read_text() == "gs\ngs\n"  # the trap works: Pillow itself starts it
