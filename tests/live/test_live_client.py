"""The client: what it takes, and what it brings back."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from iblurry import InputError
from iblurry.errors import ServiceError
from iblurry.live.client import Prediction, Receipt, TopLabel
from tests.live.stand_in import IMAGES, MEMORY, POINT

# what can be taught


def test_paths_bytes_and_arrays(service, client, tmp_path):
    file = tmp_path / "one.png"
    file.write_bytes(b"a picture")
    assert client.learn(file, "cat") == Receipt(accepted=1, first=1, last=1, repeated=0)
    assert client.learn(str(file), "cat") == Receipt(1, 2, 2, 0)
    assert client.learn(b"another", "dog") == Receipt(1, 3, 3, 0)
    assert client.learn(IMAGES[0], "zero") == Receipt(1, 4, 4, 0)
    assert client.learn(IMAGES[1:3], ["one", "two"]) == Receipt(2, 5, 6, 0)
    assert client.learn([file, b"more", IMAGES[3], IMAGES[4:6]], "all of one") == Receipt(5, 7, 11, 0)
    pixels = [image.tobytes() for image in IMAGES]
    assert service.samples == [
        *(("cat", b"a picture"), ("cat", b"a picture"), ("dog", b"another")),
        *(("zero", pixels[0]), ("one", pixels[1]), ("two", pixels[2])),
        *(("all of one", content) for content in (b"a picture", b"more", *pixels[3:6])),
    ]


def test_pictures_of_pillow(service, client, tmp_path):
    """Lossless, upright and in colours that a PNG can hold; alone, in lists, and in questions."""
    colours = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    one = Image.fromarray(colours)
    turned = one.copy()
    turned.getexif()[0x0112] = 3  # upside down
    client.learn(one, "one")
    client.learn([turned, IMAGES[0], one.convert("CMYK"), one.convert("L")], "more")
    sent = [np.asarray(Image.open(io.BytesIO(raw))) for _, raw in service.samples if raw.startswith(b"\x89PNG")]
    assert (sent[0] == colours).all()
    assert (sent[1] == colours[::-1, ::-1]).all()
    assert sent[2].shape == (4, 4, 3)
    assert sent[3].shape == (4, 4)
    assert len(client.predict([one, turned])) == 2


@pytest.mark.parametrize("label", ["a\u200bb", "\u202ea", "  ", "a\n"])
def test_labels_that_no_service_takes_are_not_sent(service, client, label):
    with pytest.raises(InputError, match="label"):
        client.learn(IMAGES[0], label)
    assert service.requests == []


def test_labels_are_sent_in_one_form(service, client):
    client.learn(IMAGES[:2], ["cafe\u0301 ", "café"])
    assert [label for label, _ in service.samples] == ["café", "café"]


def test_an_array_that_does_not_lie_in_a_row(service, client):
    client.learn(IMAGES.transpose(1, 0, 3, 2)[0][:, None], "turned")
    assert service.samples[1][1] == IMAGES[1, 0].T.tobytes()


@pytest.mark.parametrize(
    "images, labels, sentence",
    [
        ([], [], "at least one"),
        (IMAGES, ["one"], "7 images and 1 labels"),
        (IMAGES[:2], ["x", "caf\udce9"], r"'caf\udce9'"),
        (IMAGES[0], [3], "label 3"),
        (IMAGES.astype(np.float32), "x", "float32"),
        (IMAGES[0, 0], "x", "(8, 8)"),
        ([[1, 2], [3, 4]], "x", "shape ()"),
        (IMAGES[0].transpose(1, 2, 0), "x", "(8, 8, 1)"),
        ("nowhere.png", "x", "nowhere.png"),
    ],
)
def test_what_cannot_be_taught_is_refused_before_it_is_sent(service, client, images, labels, sentence):
    with pytest.raises(InputError) as caught:
        client.learn(images, labels)
    assert sentence in str(caught.value)
    assert service.requests == []


@pytest.mark.parametrize("key", ["", "ключ", "two words", "a line\n", "x" * 181])
def test_keys_that_a_header_cannot_carry(client, key):
    with pytest.raises(InputError, match="1 to 180"):
        client.learn(IMAGES[0], "x", key=key)


# questions


def test_answers(service, client):
    client.learn(IMAGES[:3], ["zero", "one", "two"])
    first, second = client.predict([IMAGES[1], b"strange"], top=2)
    assert first == Prediction("one", 0.9, (TopLabel("one", 0.9), TopLabel("two", 0.01)), model=3, id="00000000")
    assert second.label == "zero"
    assert [len(one.top) for one in client.predict(IMAGES[0])] == [3]
    assert client.predict([]) == []


def test_a_picture_in_question_that_cannot_be_read_is_named(service, client, tmp_path):
    client.learn(IMAGES[:3], "x")
    (tmp_path / "broken.png").write_bytes(b"broken")
    service.unreadable, service.batch = {b"broken"}, 3
    with pytest.raises(ServiceError) as caught:
        client.predict([*IMAGES[:4], tmp_path / "broken.png"])
    assert str(caught.value).startswith(str(tmp_path / "broken.png"))
    with pytest.raises(ServiceError, match=r"^images\[5\]"):
        client.predict([*IMAGES[:5], b"broken"])


def test_what_there_is_to_see(service, client):
    client.learn(IMAGES[0], "x")
    assert client.status()["accepted"] == 1
    assert client.classes() == [{"label": "x"}]
    assert client.memory(each=3) == MEMORY
    assert client.history() == [POINT]
    assert client.ready()
    service.unready = "It is recovering."
    assert not client.ready()


def test_waiting_for_all_that_is_accepted(service, client, clock):
    client.learn(IMAGES, "x")
    service.learnt = 2

    def sleep(seconds):
        clock.pauses.append(seconds)
        service.learnt += 1
        service.samples.append(("by another", b""))  # which is not waited for

    clock.sleep = sleep
    seen = []
    assert client.wait(on_status=seen.append)["learnt"] == 7
    assert [status["learnt"] for status in seen] == [2, 3, 4, 5, 6, 7]
    service.learnt = 2
    assert client.wait(4)["model"] == 4


def test_waiting_ends(service, client, clock):
    client.learn(IMAGES, "x")
    service.learnt = 2
    with pytest.raises(ServiceError) as caught:
        client.wait(timeout=1)
    assert "2 of 7" in str(caught.value)
    assert caught.value.code == "not_learnt_yet"


def test_events(service, client):
    service.lines = (
        b': hello\n\nevent: status\ndata: {"learnt": 1}\n\n: still there\n\nevent: class\r\ndata: {"label": "\xc3\xa4"}'
        b'\r\n\r\ndata: {"a":\ndata: 1}\n\nevent: point\ndata: {"cut'
    )
    assert list(client.events()) == [("status", {"learnt": 1}), ("class", {"label": "ä"}), ("message", {"a": 1})]
    first = next(iter(client.events()))
    assert first[0] == "status"
