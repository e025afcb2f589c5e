"""The client: what it takes and brings back, its way to the service, and samples that are sent once."""

from __future__ import annotations

import contextlib
import io
import re
import socket
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from iblurry import Client, InputError
from iblurry.errors import DataError, ServiceError
from iblurry.live.client import BYTES, Prediction, Receipt, TopLabel, encode_image, encoded_size, send_in_halves
from tests.live.stand_in import IMAGES, MEMORY, POINT, StandIn

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


# patience


def test_it_waits_as_long_as_the_service_says(service, client, clock):
    service.troubles = ["busy", "busy"]
    assert client.learn(IMAGES[0], "x").accepted == 1
    assert clock.pauses == [2, 2]
    assert len(service.requests) == 3


def test_pauses_grow_while_it_is_away(service, client, clock):
    service.troubles = ["away"] * 9
    client.learn(IMAGES[0], "x")
    assert clock.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])


def test_patience_ends_with_the_sentence_of_the_service(service, clock):
    service.troubles = ["busy"] * 99
    with Client(service.url, patience=7) as client, pytest.raises(ServiceError) as caught:
        client.learn(IMAGES[0], "x")
    error = caught.value
    assert str(error).startswith("The queue is full")
    assert "6 s" in str(error)
    assert (error.status, error.code, error.retry_after) == (429, "queue_full", 2)
    assert clock.pauses == [2, 2, 2]
    assert service.samples == []


def test_what_was_accepted_before_an_error_is_said(service, client):
    service.queue_limit = 3
    service.troubles = ["", "", "full"]
    with pytest.raises(ServiceError) as caught:
        client.learn(IMAGES, "x")
    assert str(caught.value).startswith("The disk is full")
    assert "5 of 7" in str(caught.value)
    assert (caught.value.status, caught.value.code) == (507, "disk_full")
    assert len(service.requests) == 3  # a full disk is not tried again


def test_nobody_there(nobody, clock):
    with Client(nobody, patience=20) as client:
        with pytest.raises(ServiceError, match="Connection refused"):
            client.predict(IMAGES[0])
        assert clock.pauses == []  # only what is taught waits
        with pytest.raises(ServiceError) as caught:
            client.learn(IMAGES[0], "x")
        assert (caught.value.status, caught.value.code) == (None, "unreachable")
        assert 15 < sum(clock.pauses) <= 20
        assert not client.ready()


# the way there


def test_a_token(service):
    service.token = "open sesame"
    with Client(service.url) as client, pytest.raises(ServiceError, match="token") as caught:
        client.learn(IMAGES[0], "x")
    assert (caught.value.status, caught.value.code) == (401, "token")
    with Client(service.url, token="wrong") as client, pytest.raises(ServiceError):
        next(client.events())
    with Client(service.url, token="open sesame") as client:
        assert client.learn(IMAGES[0], "x").accepted == 1
        assert client.ready()
    for token in ("", "two\nlines", "ключ", " a "):
        with pytest.raises(InputError, match="token"):
            Client(service.url, token=token)


def test_a_service_below_a_path():
    with StandIn(prefix="/pets") as service, Client(service.url + "/") as client:
        assert client.learn(IMAGES[0], "x").accepted == 1
        assert client.url == service.url


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://a", "http://", "http://a:b", "http://[", "http://a/?b=c"])
def test_addresses_that_are_none(url):
    with pytest.raises(InputError, match=re.escape(repr(url))):
        Client(url)


def test_one_connection_is_kept_and_each_thread_has_its_own(service, client):
    for _ in range(5):
        client.status()
    assert service.connections == 1
    threads = [threading.Thread(target=client.learn, args=(IMAGES, str(row))) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(service.samples) == 8 * len(IMAGES)
    assert service.connections <= 8


def test_a_kept_connection_that_was_closed_meanwhile():
    with StandIn() as before, Client(before.url) as client:
        client.learn(IMAGES[0], "x")
        before.server.shutdown()
        before.server.server_close()
        with StandIn(port=before.server.server_port) as again:
            assert client.learn(IMAGES[0], "x").repeated == 0
            assert client.status()["accepted"] == len(again.samples) == 1


def test_a_connection_that_breaks_while_it_is_made(service, client, clock, monkeypatch):
    connect, tries = socket.create_connection, []

    def reset(*given, **more):
        tries.append(given)
        if len(tries) < 3:
            raise ConnectionResetError(104, "Connection reset by peer")
        return connect(*given, **more)

    monkeypatch.setattr(socket, "create_connection", reset)
    assert client.learn(IMAGES[0], "x").accepted == 1
    assert len(service.samples) == 1


class Odd(BaseHTTPRequestHandler):
    """Another program at that address; it refuses before it has heard all."""

    def do_GET(self):
        self.send_response(200 if self.path != "/readyz" else 302)
        self.end_headers()
        self.wfile.write(b"<html>Hello</html>")

    def do_POST(self):
        self.send_response(413)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def odd():
    with HTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_another_program_at_that_address(odd):
    with Client(odd) as client:
        with pytest.raises(ServiceError, match="200 OK") as caught:
            client.status()
        assert (caught.value.status, caught.value.code) == (200, "strange_answer")
        with pytest.raises(ServiceError, match="answers 302 Found"):
            client.ready()


def test_an_answer_before_all_was_heard(odd):
    with Client(odd) as client:
        client.__dict__["_image_and_queue"] = (1, 8, 8), 256
        with pytest.raises(ServiceError) as caught:
            client.learn([b"x" * 2**23], "x")
        assert caught.value.status == 413


def test_a_certificate_that_is_not_trusted_is_not_tried_again(service, client, clock, monkeypatch):
    def connect(*_, **__):
        raise ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(ServiceError, match="self-signed") as caught:
        client.learn(IMAGES[0], "x")
    assert caught.value.code == "not_trusted"
    assert clock.pauses == []


def test_neither_torch_nor_numpy_is_needed(service, tmp_path):
    (tmp_path / "a.png").write_bytes(b"a")
    code = (
        "import sys\nfrom iblurry import Client\n"
        f"with Client({service.url!r}) as client:\n    print(client.learn({str(tmp_path / 'a.png')!r}, 'x').last)\n"
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n[]\n"


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
