"""`iblurry live send` and `ask` with pictures that cannot be read, are too large, or lie where no label can be."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from iblurry.live.http.pictures import PictureDecoder
from iblurry.live.quota import Limits
from tests.live.stand_in import StandIn


@pytest.fixture
def many(here):
    """151 pictures in three folders."""
    for row in range(151):
        path = here / "many" / "abc"[row % 3] / f"{row:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (row, 0, 0)).save(path)
    return here / "many"


def test_a_broken_picture_in_the_middle_can_be_skipped_and_each_other_counts_once(call, refused, service, many):
    broken = many / "b" / "100.png"
    broken.write_bytes(b"nothing")
    service.unreadable = {b"nothing"}
    words = ("live", "send", "many", "--in-order", "--resume-key", "k")  # b/100.png is in the second 64
    said = refused(*words)
    assert said.startswith(f"iblurry: many{os.sep}b{os.sep}100.png")
    assert "--skip-bad" in said
    assert "64 of 151" in said
    done = call(*words, "--skip-bad")
    assert done.code == 0
    assert f"1 (many{os.sep}b{os.sep}100.png)" in done.err
    assert done.out.startswith("150 samples accepted, 64 of which were accepted before; 150 learnt")
    again = json.loads(call(*words, "--skip-bad", "--json").out)
    assert (again["accepted"], again["repeated"], again["left_out"]) == (
        150,
        150,
        [str(broken.relative_to(many.parent))],
    )
    good = sorted(path.read_bytes() for path in many.rglob("*.png") if path != broken)
    assert sorted(content for _, content in service.samples) == good


def test_a_broken_picture_in_the_middle_can_be_replaced(call, refused, service, many):
    broken = many / "b" / "100.png"
    good = broken.read_bytes()
    broken.write_bytes(b"nothing")
    service.unreadable = {b"nothing"}
    refused("live", "send", "many", "--in-order", "--resume-key", "k")
    broken.write_bytes(good)
    done = call("live", "send", "many", "--in-order", "--resume-key", "k")
    assert done.out.startswith("151 samples accepted, 64 of which were accepted before; 151 learnt")


def test_the_order_is_that_of_all(call, service, many):
    assert call("live", "send", "many", "--limit", 140).code == 0
    order = [content for _, content in service.samples]
    service.samples, service.unreadable = [], {order[3], order[70], order[130]}
    assert call("live", "send", "many", "--limit", 140, "--skip-bad").code == 0
    assert [content for _, content in service.samples] == [one for one in order if one not in service.unreadable]


def test_what_to_skip_is_not_read_from_a_sentence(call, refused, service, many):
    (many / "a" / "003.png").write_bytes(b"nothing")
    service.unreadable, service.sentence = {b"nothing"}, "Dieses Bild ist nicht lesbar."
    assert "003.png" in refused("live", "send", "many", "--in-order")
    done = call("live", "send", "many", "--in-order", "--skip-bad")
    assert (done.code, len(service.samples)) == (0, 150)


def test_only_the_first_few_are_named(call, service, many):
    for row in range(5):
        (many / "abc"[row % 3] / f"{row:03}.png").write_bytes(b"")
    service.unreadable = {b""}
    told = call("live", "send", "many", "--in-order", "--skip-bad").err
    names = [f"many{os.sep}{name}" for name in (f"a{os.sep}000.png", f"a{os.sep}003.png", f"b{os.sep}001.png")]
    assert f"5 ({', '.join(names)}, and 2 more)" in told


def test_nothing_can_be_read(refused, service, here):
    (here / "a.png").write_bytes(b"nothing")
    service.unreadable = {b"nothing"}
    said = refused("live", "send", "a.png", "--label", "x", "--skip-bad")
    assert "a.png" in said


def test_a_picture_that_is_gone(call, refused, service, pets):
    (pets / "dog" / "5.png").symlink_to(pets / "nowhere.png")
    (pets / "dog" / "6.png").mkdir()
    assert call("live", "send", "pets").out.startswith("4 samples accepted")  # neither is a file


# too large


@pytest.fixture
def colourful(monkeypatch):
    monkeypatch.delenv("IBLURRY_TOKEN", raising=False)
    with StandIn(image=(3, 4, 6)) as stand_in:
        monkeypatch.setenv("IBLURRY_URL", stand_in.url)
        yield stand_in


@pytest.fixture(scope="module")
def photo():
    """What a camera writes: more than 16 million pixels, lying on their side."""
    width, height, exif, file = 4200, 4000, Image.Exif(), io.BytesIO()
    down = Image.linear_gradient("L").resize((width, height))
    exif[0x0112] = 6
    Image.merge("RGB", [down.rotate(180), down, Image.new("L", (width, height), 90)]).save(file, "JPEG", exif=exif)
    return file.getvalue()


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_pictures_of_a_camera_are_made_smaller_here_as_the_service_would(call, colourful, here, photo):
    put(here / "roll" / "sea" / "1.jpg", photo)
    Image.new("RGB", (9, 7)).save(here / "roll" / "sea" / "2.png")
    assert call("live", "send", "roll", "--in-order").code == 0
    pixels = PictureDecoder((3, 4, 6), Limits(pixels=24_000_000)).decode(photo, "it")
    assert colourful.samples == [("sea", pixels.tobytes()), ("sea", (here / "roll/sea/2.png").read_bytes())]
    (answer,) = json.loads(call("live", "ask", "roll/sea/1.jpg", "--json").out)
    assert answer["image"] == "roll/sea/1.jpg"


@pytest.mark.slow
def test_it_needs_neither_torch_nor_the_extra(colourful, here, photo):
    put(here / "sea.jpg", photo)
    code = (
        "import sys\nfrom iblurry.cli.main import main\n"
        "try:\n    main(['live', 'send', 'sea.jpg', '--label', 'sea'])\n"
        "finally:\n    print([name for name in ('torch', 'fastapi', 'pydantic_core') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")
    assert len(colourful.samples) == 1


def test_files_that_are_longer_than_a_request(call, colourful, here):
    noise = np.random.default_rng(1).integers(0, 256, (2000, 2000, 3), np.uint8)
    Image.fromarray(noise).save(here / "noise.bmp")
    assert call("live", "send", "noise.bmp", "--label", "noise").code == 0
    assert [(label, len(pixels)) for label, pixels in colourful.samples] == [("noise", 3 * 4 * 6)]


def test_a_large_picture_that_is_cut_off_is_named(call, refused, colourful, here, photo):
    put(here / "roll" / "sea" / "1.jpg", photo[: len(photo) // 2])
    Image.new("RGB", (9, 7)).save(here / "roll" / "sea" / "2.png")
    said = refused("live", "send", "roll", "--in-order")
    assert said.startswith(f"iblurry: roll{os.sep}sea{os.sep}1.jpg")
    assert "0 of 2" in said
    assert colourful.requests == []
    assert "1.jpg" in refused("live", "ask", "roll/sea/1.jpg")
    assert call("live", "send", "roll", "--in-order", "--skip-bad").code == 0
    assert len(colourful.samples) == 1


def test_a_picture_beyond_all_bounds_is_named(refused, colourful, here):
    Image.new("1", (20_000, 10_000)).save(here / "map.png")
    assert "map.png has more than 178956970 pixels" in refused("live", "send", "map.png", "--label", "x")


def test_a_picture_in_question_that_cannot_be_read_is_named(call, refused, service, pets):
    assert call("live", "send", "pets").code == 0
    (pets / "cat" / "1.png").write_bytes(b"nothing")
    service.unreadable = {b"nothing"}
    said = refused("live", "ask", "pets/dog/3.jpg", "pets/cat/1.png")
    assert said.startswith("iblurry: pets/cat/1.png")


# names that are no text


def test_a_folder_whose_name_is_not_utf_8(refused, service, pets):
    strange = os.fsdecode(os.fsencode(pets) + b"/caf\xe9")
    try:
        os.rename(pets / "dog", strange)
    except OSError:
        pytest.skip("names of files are UTF-8 here")
    said = refused("live", "send", "pets")
    assert "caf\\udce9" in said
    assert service.requests == []
    assert "The label 'caf\\udce9' has U+DCE9" in refused("live", "send", "pets/cat", "--label", "caf\udce9")
