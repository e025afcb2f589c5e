"""Samples on their way: requests within the limits, every sample once, in whatever parts it is sent."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iblurry.errors import DataError, ServiceError
from iblurry.live.client import BYTES, Receipt, encode_image, encoded_size, send_in_halves
from tests.live.stand_in import IMAGES

LETTERS = [str(row) for row in range(64)]
MANY = np.arange(64 * 64).reshape(64, 1, 8, 8).astype(np.uint8)

# requests


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60), most=st.integers(1, 9), limit=st.integers(1, 100))
def test_requests_hold_everything_in_order_within_the_limits(sizes, most, limit):
    sent = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("iblurry.live.client.BYTES", limit)
        list(send_in_halves(range(len(sizes)), sent.append, size=sizes.__getitem__, limit=most))
    assert [place for places in sent for place in places] == list(range(len(sizes)))
    for places in sent:
        assert len(places) == 1 or (len(places) <= most and sum(sizes[place] for place in places) <= limit)


@given(first=st.integers(1, 64), second=st.integers(1, 64), stopped=st.integers(0, 64))
def test_what_was_accepted_in_parts_is_met_again_in_the_same_parts(first, second, stopped):
    """Whatever the service takes at a time then and now, as long as it knows what it has before it counts it."""
    known, learnt = {}, []

    def service(most, until):
        def send(places):
            if places.start in known:
                if known[places.start] != places:
                    raise ServiceError("Another.", status=422, code="key_reused")
            elif len(places) > most:
                raise ServiceError("Too many.", status=413, code="too_many")
            elif places.stop > until:
                raise KeyboardInterrupt
            else:
                known[places.start] = places
                learnt.extend(places)

        list(send_in_halves(range(64), send, size=lambda index: 1, limit=64))

    if stopped < 64:
        with pytest.raises(KeyboardInterrupt):
            service(first, stopped)
    service(second, 64)
    assert learnt == list(range(64))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_the_weight_of_an_item_is_no_less_than_it_has(tmp_path, size):
    (tmp_path / "a").write_bytes(bytes(size))
    pixels = np.zeros((1, 1, size), np.uint8)
    for label in ("", "cat", "\u30cd\u30b3\n"):
        for image in (tmp_path / "a", str(tmp_path / "a"), bytes(size), pixels):
            made = len(encode_image(image, pixels.shape, label))
            assert made <= encoded_size(image, label) <= made + 6 * len(label) + 20
    assert encoded_size(tmp_path) == encoded_size(tmp_path / "b") == encoded_size(None) == 32


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
    client.learn(IMAGES, "x")
    assert [count for _, count in service.requests] == [3, 2, 2]
    client.learn(IMAGES, "x", key="k")  # under a key of ours more may have been accepted before
    assert service.requests[3:] == [("k", 7), ("k", 3), ("k:3", 4), ("k:3", 2), ("k:5", 2)]


def test_a_service_that_takes_less_gets_halves(service, client):
    service.batch = 2
    assert client.learn(IMAGES, list("abcdefg"), key="k") == Receipt(7, 1, 7, 0)
    assert [label for label, _ in service.samples] == list("abcdefg")
    assert [key for key, count in service.requests if count <= 2] == ["k", "k:1", "k:3", "k:5"]
    assert len(client.predict(IMAGES)) == 7


def test_a_single_sample_that_is_too_much(service, client):
    service.batch = 0
    with pytest.raises(ServiceError, match=r"^images\[0\]") as caught:
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


def test_the_same_call_again_with_a_key(service, client):
    first = client.learn(IMAGES, "x", key="today")
    again = client.learn(IMAGES, "x", key="today")
    assert (first, again) == (Receipt(7, 1, 7, 0), Receipt(7, 1, 7, 7))
    assert len(service.samples) == 7
    with pytest.raises(ServiceError, match="This key") as caught:
        client.learn(IMAGES, "y", key="today")
    assert (caught.value.status, caught.value.code) == (422, "key_reused")


@pytest.mark.parametrize("before, after", [(20, 1000), (1000, 20), (5, 7), (7, 5), (1, 64), (64, 1)])
def test_the_same_call_again_after_a_restart_with_another_queue(service, client, before, after):
    service.queue_limit = before
    service.troubles = ["", "", "", "full"]
    with contextlib.suppress(ServiceError):  # where it needs four requests
        client.learn(MANY, LETTERS, key="q")
    service.troubles, service.queue_limit, there = [], after, len(service.samples)
    assert client.learn(MANY, LETTERS, key="q") == Receipt(64, 1, 64, there)
    assert [label for label, _ in service.samples] == LETTERS


def test_other_samples_under_a_key_that_was_used_in_parts(service, client):
    service.queue_limit = 20
    client.learn(MANY, LETTERS, key="q")
    service.queue_limit = 1000
    with pytest.raises(ServiceError) as caught:
        client.learn(MANY[::-1], LETTERS, key="q")
    assert (caught.value.status, caught.value.code) == (422, "key_reused")
    assert [label for label, _ in service.samples] == LETTERS


# pictures that cannot be read


@pytest.fixture
def pictures(tmp_path, service):
    """Eight, of which the sixth is broken."""
    paths = [tmp_path / f"{row}.png" for row in range(8)]
    for row, path in enumerate(paths):
        path.write_bytes(b"%d" % row)
    service.unreadable = {b"5"}
    return paths


def test_a_picture_that_the_service_cannot_read_is_named(service, client, pictures):
    service.queue_limit = 4
    with pytest.raises(ServiceError) as caught:
        client.learn(pictures, "x")
    assert str(caught.value).startswith(str(pictures[5]))
    assert "4 of 8" in str(caught.value)
    assert len(service.requests) == 2  # halves would not help


@pytest.mark.parametrize("batch, accepted", [(2, 4), (4, 4), (256, 0)])
def test_left_out_pictures_leave_the_others_at_their_places(service, client, pictures, batch, accepted):
    service.batch = batch
    strict = client.upload(pictures, LETTERS[:8], "k")
    with pytest.raises(ServiceError):
        strict.send()
    assert (strict.failed_at, strict.skipped, strict.unconfirmed) == (5, [], range(0))
    assert strict.accepted == len(service.samples) == accepted
    service.batch = 256
    pictures[6].unlink()  # nor can this one be read any more
    for repeated in (strict.accepted, 6):
        upload = client.upload(pictures, LETTERS[:8], "k", skip_bad=True)
        upload.send()
        assert upload.receipt == Receipt(6, 1, 6, repeated)
        assert sorted(upload.skipped) == [5, 6]
    assert [label for label, _ in service.samples] == list("012347")


def test_nothing_is_left_out_unasked(service, client, pictures):
    pictures[2].unlink()
    upload = client.upload(pictures, LETTERS[:8], size=2)
    with pytest.raises(DataError, match=r"2\.png cannot be read"):
        upload.send()
    assert (upload.failed_at, upload.accepted, upload.unconfirmed) == (2, 2, range(0))


# doubt


@pytest.mark.parametrize(
    "troubles, doubt",
    [
        (["full"], range(0)),  # the service's word
        (["away"] * 9, range(0)),
        (["drop"] * 9, range(7)),
        (["commit"] * 9, range(7)),
        (["proxy"] * 9, range(7)),
        (["commit", "commit", "away", "away"], range(7)),  # it may have been there before the service began to stop
    ],
)
def test_only_what_got_no_answer_is_in_doubt(service, client, clock, troubles, doubt):
    service.troubles, client.patience = list(troubles), 0.15
    upload = client.upload(IMAGES, "x" * 7)
    with pytest.raises(ServiceError):
        upload.send()
    assert (upload.accepted, upload.unconfirmed) == (0, doubt)
    service.troubles = []
    upload.confirm()
    assert upload.accepted == len(doubt)
    assert len(service.samples) == len(doubt)
