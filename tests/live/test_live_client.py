"""The client: what it takes, how it packs it, every sample once, and what it brings back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iblurry import InputError
from iblurry.errors import ServiceError
from iblurry.live.client import Answer, Guess, Receipt
from iblurry.live.client.parcels import BYTES, parcels
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


def test_an_array_that_does_not_lie_in_a_row(service, client):
    client.learn(IMAGES.transpose(1, 0, 3, 2)[0][:, None], "turned")
    assert service.samples[1][1] == IMAGES[1, 0].T.tobytes()


@pytest.mark.parametrize(
    "images, labels, sentence",
    [
        ([], [], "nothing to learn"),
        (IMAGES, ["one"], "There are 7 images and 1 labels"),
        (IMAGES[0], [3], "The label 3 is no text; give labels as str, such as '3'."),
        (IMAGES.astype(np.float32), "x", "not float32 of the shape (7, 1, 8, 8)"),
        (IMAGES[0, 0], "x", "not uint8 of the shape (8, 8)"),
        ([[1, 2], [3, 4]], "x", "An image is a path, the bytes of a picture, or an array of bytes"),
        (IMAGES[0].transpose(1, 2, 0), "x", "has the shape (8, 8, 1), and this service takes (C, H, W) = (1, 8, 8)"),
        ("nowhere.png", "x", "nowhere.png cannot be read (No such file or directory)"),
    ],
)
def test_what_cannot_be_taught_is_refused_before_it_is_sent(service, client, images, labels, sentence):
    with pytest.raises(InputError) as caught:
        client.learn(images, labels)
    assert sentence in str(caught.value)
    assert service.requests == []


@pytest.mark.parametrize("key", ["", "ключ", "two words", "a line\n", "x" * 181])
def test_keys_that_a_header_cannot_carry(client, key):
    with pytest.raises(InputError, match="give 1 to 180 visible ASCII characters"):
        client.learn(IMAGES[0], "x", key=key)


# parcels


@given(sizes=st.lists(st.integers(1, 40), max_size=60), most=st.integers(1, 9), limit=st.integers(1, 100))
@settings(deadline=None)
def test_parcels_hold_everything_in_order_within_the_limits(sizes, most, limit):
    items = [bytes([row % 256]) * size for row, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("iblurry.live.client.parcels.BYTES", limit)
        made = list(parcels(iter(items), most))
    assert [one for _, parcel in made for one in parcel] == items
    assert [first for first, _ in made] == [sum(len(p) for _, p in made[:at]) for at in range(len(made))]
    for _, parcel in made:
        assert 1 <= len(parcel) <= most
        assert len(parcel) == 1 or len(b",".join(parcel)) <= limit
    for (_, one), (_, next_) in pairwise(made):  # none could have been longer
        assert len(one) == most or len(b",".join([*one, next_[0]])) > limit


def test_many_samples_are_several_requests_with_a_key_each(service, client):
    images = np.zeros((600, 1, 8, 8), np.uint8)
    receipt = client.learn(images, [str(row) for row in range(600)], key="mine")
    assert receipt == Receipt(600, 1, 600, 0)
    assert service.requests == [("mine", 256), ("mine:256", 256), ("mine:512", 88)]
    assert [label for label, _ in service.samples] == [str(row) for row in range(600)]


def test_large_pictures_are_fewer_at_a_time(service, client):
    client.learn([b"x" * (BYTES // 3)] * 4, "large")  # four thirds of it each in base64
    assert [count for _, count in service.requests] == [2, 2]


def test_no_more_at_a_time_than_the_queue_holds(service, client):
    service.queue_limit = 3
    client.learn(IMAGES, "x", key="k")
    assert service.requests == [("k", 3), ("k:3", 3), ("k:6", 1)]


def test_a_service_that_takes_less_gets_halves(service, client):
    service.batch = 2
    assert client.learn(IMAGES, list("abcdefg"), key="k") == Receipt(7, 1, 7, 0)
    assert [label for label, _ in service.samples] == list("abcdefg")
    assert [key for key, count in service.requests if count <= 2] == ["k", "k:1", "k:3", "k:5"]
    assert len(client.predict(IMAGES)) == 7


def test_a_single_sample_that_is_too_much(service, client):
    service.batch = 0
    with pytest.raises(ServiceError, match="Give at most 0 samples at a time") as caught:
        client.learn(IMAGES[:2], "x")
    assert (caught.value.status, caught.value.code) == (413, "too_many")


# once


@pytest.mark.parametrize("trouble", ["commit", "drop"])
def test_a_connection_that_breaks_before_or_after_it_is_kept(service, client, clock, trouble):
    service.troubles = ["", trouble, trouble, trouble]
    for label in "abc":
        client.learn(IMAGES[0], label)
    assert [label for label, _ in service.samples] == ["a", "b", "c"]
    keys = [key for key, _ in service.requests]
    assert len(keys) == 6
    assert len(set(keys)) == 3
    assert len(set(keys[1:5])) == 1


def test_a_batch_in_the_middle_breaks_after_it_is_kept(service, client, clock):
    service.queue_limit = 2
    service.troubles = ["", "commit", "", "commit"]
    receipt = client.learn(IMAGES, list("abcdefg"))
    assert [label for label, _ in service.samples] == list("abcdefg")
    assert (receipt.accepted, receipt.first, receipt.last) == (7, 1, 7)


def test_the_same_call_again_with_a_key(service, client):
    first = client.learn(IMAGES, "x", key="today")
    again = client.learn(IMAGES, "x", key="today")
    assert (first, again) == (Receipt(7, 1, 7, 0), Receipt(7, 1, 7, 7))
    assert len(service.samples) == 7
    with pytest.raises(ServiceError, match="use another") as caught:
        client.learn(IMAGES, "y", key="today")
    assert (caught.value.status, caught.value.code) == (422, "key_reused")


def test_without_a_key_the_same_call_counts_again(service, client):
    client.learn(IMAGES, "x")
    client.learn(IMAGES, "x")
    assert len(service.samples) == 14


# questions


def test_answers(service, client):
    client.learn(IMAGES[:3], ["zero", "one", "two"])
    first, second = client.predict([IMAGES[1], b"strange"], top=2)
    assert first == Answer("one", 0.9, (Guess("one", 0.9), Guess("two", 0.01)), model=3)
    assert second.label == "zero"
    assert [len(one.top) for one in client.predict(IMAGES[0])] == [3]
    assert client.predict([]) == []


def test_nothing_learnt_yet(client):
    with pytest.raises(ServiceError, match="teach it first") as caught:
        client.predict(IMAGES[0])
    assert (caught.value.status, caught.value.code) == (409, "nothing_learnt")


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
    assert client.wait(seen=seen.append)["learnt"] == 7
    assert [status["learnt"] for status in seen] == [2, 3, 4, 5, 6, 7]
    service.learnt = 2
    assert client.wait(4)["model"] == 4


def test_waiting_ends(service, client, clock):
    client.learn(IMAGES, "x")
    service.learnt = 2
    with pytest.raises(ServiceError) as caught:
        client.wait(timeout=1)
    expected = "The model has learnt 2 of 7 samples. It is learning. Waited for 1 s; wait longer."
    assert str(caught.value) == expected
    assert caught.value.code == "not_learnt_yet"


def test_events(service, client):
    service.lines = (
        b': hello\n\nevent: status\ndata: {"learnt": 1}\n\n: still there\n\nevent: class\r\ndata: {"label": "\xc3\xa4"}'
        b'\r\n\r\ndata: {"a":\ndata: 1}\n\nevent: point\ndata: {"cut'
    )
    assert list(client.events()) == [("status", {"learnt": 1}), ("class", {"label": "ä"}), ("message", {"a": 1})]
    first = next(iter(client.events()))
    assert first[0] == "status"
