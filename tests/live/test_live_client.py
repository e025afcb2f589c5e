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
from iblurry.live.quota import Refusal
from tests.live.serving import Serving
from tests.live.toy import POINT, Toy

IMAGES = np.arange(7 * 64, dtype=np.int64).reshape(7, 1, 8, 8).astype(np.uint8)
BUSY = Refusal(429, "queue_full", "The queue is full; send it again later.", retry_after=2)
AWAY = Refusal(503, "stopping", "The service is stopping.")
FULL = Refusal(507, "disk_full", "The disk is full; make room.")
MANY_AT_A_TIME = Refusal(413, "too_many", "Send fewer.")


@pytest.fixture(scope="module")
def shared():
    with Serving(Toy((1, 8, 8))) as serving:
        yield serving


@pytest.fixture
def service(shared):
    return shared.reset()


@pytest.fixture
def toy(service):
    return service.service


@pytest.fixture
def client(service):
    with Client(service.url) as client:
        yield client


def png(pixels):
    """A grey picture, from an array (1, H, W)."""
    held = io.BytesIO()
    Image.fromarray(pixels[0]).save(held, "PNG")
    return held.getvalue()


def seen(toy):
    return [(sample.label, sample.pixels.tobytes()) for sample in toy.samples]


def labels(toy):
    return [sample.label for sample in toy.samples]


# what can be taught


def test_paths_bytes_and_arrays(toy, client, tmp_path):
    file = tmp_path / "one.png"
    file.write_bytes(png(IMAGES[6]))
    assert client.learn(file, "cat") == Receipt(accepted=1, first=1, last=1, repeated=0)
    assert client.learn(str(file), "cat") == Receipt(1, 2, 2, 0)
    assert client.learn(png(IMAGES[5]), "dog") == Receipt(1, 3, 3, 0)
    assert client.learn(IMAGES[0], "zero") == Receipt(1, 4, 4, 0)
    assert client.learn(IMAGES[1:3], ["one", "two"]) == Receipt(2, 5, 6, 0)
    assert client.learn([file, png(IMAGES[2]), IMAGES[3], IMAGES[4:6]], "all of one") == Receipt(5, 7, 11, 0)
    pixels = [image.tobytes() for image in IMAGES]
    assert seen(toy) == [
        *(("cat", pixels[6]), ("cat", pixels[6]), ("dog", pixels[5])),
        *(("zero", pixels[0]), ("one", pixels[1]), ("two", pixels[2])),
        *(("all of one", content) for content in (pixels[6], pixels[2], *pixels[3:6])),
    ]


def test_pictures_of_pillow():
    """Lossless, upright and in colours that a PNG can hold; alone, in lists, and in questions."""
    colours = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    one = Image.fromarray(colours)
    turned = one.copy()
    turned.getexif()[0x0112] = 3  # upside down
    toy, plain = Toy((3, 4, 4)), colours.transpose(2, 0, 1)
    with Serving(toy) as service, Client(service.url) as client:
        client.learn(one, "one")
        client.learn([turned, plain, one.convert("CMYK"), one.convert("L")], "more")
        assert len(client.predict([one, turned])) == 2
    first, upside_down, array, inks, grey = [sample.pixels for sample in toy.samples]
    assert (first == plain).all()
    assert (upside_down == plain[:, ::-1, ::-1]).all()
    assert (array == plain).all()
    assert (inks == plain).all()
    assert (grey == np.asarray(one.convert("L"))).all()


@pytest.mark.parametrize("label", ["a\u200bb", "\u202ea", "  ", "a\n"])
def test_labels_that_no_service_takes_are_not_sent(service, client, label):
    with pytest.raises(InputError, match="label"):
        client.learn(IMAGES[0], label)
    assert "/v1/learn" not in service.paths


def test_labels_are_sent_in_one_form(toy, client):
    client.learn(IMAGES[:2], ["cafe\u0301 ", "café"])
    assert labels(toy) == ["café", "café"]


def test_an_array_that_does_not_lie_in_a_row(toy, client):
    client.learn(IMAGES.transpose(1, 0, 3, 2)[0][:, None], "turned")
    assert (toy.samples[1].pixels == IMAGES[1, 0].T).all()


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
    assert "/v1/learn" not in service.paths


@pytest.mark.parametrize("key", ["", "ключ", "two words", "a line\n", "x" * 181])
def test_keys_that_a_header_cannot_carry(client, key):
    with pytest.raises(InputError, match="1 to 180"):
        client.learn(IMAGES[0], "x", key=key)


# questions


def test_answers(toy, client):
    client.learn(IMAGES[:3], ["zero", "one", "two"])
    toy.shares = (0.01, 0.9, 0.09)
    first, second = client.predict([IMAGES[1], png(IMAGES[0])], top=2)
    top = (TopLabel("one", 0.9), TopLabel("two", 0.09))
    assert first == Prediction("one", 0.9, top, model=3, id=first.id)
    assert (second.label, second.id == first.id) == ("one", False)
    assert [len(one.top) for one in client.predict(IMAGES[0])] == [3]
    assert client.predict([]) == []


def test_a_picture_in_question_that_cannot_be_read_is_named(toy, client, tmp_path):
    client.learn(IMAGES[:3], "x")
    (tmp_path / "broken.png").write_bytes(b"broken")
    toy.batch = 3
    with pytest.raises(ServiceError) as caught:
        client.predict([*IMAGES[:4], tmp_path / "broken.png"])
    assert str(caught.value).startswith(str(tmp_path / "broken.png"))
    with pytest.raises(ServiceError, match=r"^images\[5\]"):
        client.predict([*IMAGES[:5], b"broken"])


def test_what_there_is_to_see(toy, client):
    client.learn(IMAGES[0], "x")
    assert client.status()["accepted"] == 1
    assert [one["label"] for one in client.classes()] == ["x"]
    assert [one["count"] for one in client.memory(each=3)["classes"]] == [1]
    assert client.history() == [POINT]
    assert client.ready()
    toy.reason = "It is recovering."
    assert not client.ready()


def test_waiting_for_all_that_is_accepted(toy, client, clock):
    client.learn(IMAGES, "x")
    toy.learnt = 2

    def sleep(seconds):
        clock.pauses.append(seconds)
        toy.learnt += 1
        toy.teach("by another")  # which is not waited for

    clock.sleep = sleep
    seen = []
    assert client.wait(on_status=seen.append)["learnt"] == 7
    assert [status["learnt"] for status in seen] == [2, 3, 4, 5, 6, 7]
    toy.learnt = 2
    assert client.wait(4)["model"] == 4


def test_waiting_ends(toy, client, clock):
    client.learn(IMAGES, "x")
    toy.learnt = 2
    with pytest.raises(ServiceError) as caught:
        client.wait(timeout=1)
    assert "2 of 7" in str(caught.value)
    assert caught.value.code == "not_learnt_yet"


def test_events(odd):
    with Client(odd) as client:
        assert list(client.events()) == [("status", {"learnt": 1}), ("class", {"label": "ä"}), ("message", {"a": 1})]
        first = next(iter(client.events()))
        assert first[0] == "status"


# patience


def test_it_waits_as_long_as_the_service_says(service, client, clock):
    service.teaching(BUSY, BUSY)
    assert client.learn(IMAGES[0], "x").accepted == 1
    assert clock.pauses == [2, 2]
    assert service.paths.count("/v1/learn") == 3


def test_pauses_grow_while_it_is_away(service, client, clock):
    service.teaching(*[AWAY] * 9)
    client.learn(IMAGES[0], "x")
    assert clock.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])


def test_patience_ends_with_the_sentence_of_the_service(toy, service, clock):
    service.teaching(*[BUSY] * 99)
    with Client(service.url, patience=7) as client, pytest.raises(ServiceError) as caught:
        client.learn(IMAGES[0], "x")
    error = caught.value
    assert str(error).startswith("The queue is full")
    assert "6 s" in str(error)
    assert (error.status, error.code, error.retry_after) == (429, "queue_full", 2)
    assert clock.pauses == [2, 2, 2]
    assert toy.samples == []


def test_what_was_accepted_before_an_error_is_said(toy, service, client):
    toy.queue_limit = 3
    service.teaching("", "", FULL)
    with pytest.raises(ServiceError) as caught:
        client.learn(IMAGES, "x")
    assert str(caught.value).startswith("The disk is full")
    assert "5 of 7" in str(caught.value)
    assert (caught.value.status, caught.value.code) == (507, "disk_full")
    assert service.paths.count("/v1/learn") == 3  # a full disk is not tried again


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


def test_a_token():
    with Serving(Toy((1, 8, 8)), token="open-sesame") as service:
        with Client(service.url) as client, pytest.raises(ServiceError, match="token") as caught:
            client.learn(IMAGES[0], "x")
        assert (caught.value.status, caught.value.code) == (401, "wrong_token")
        with Client(service.url, token="wrong") as client, pytest.raises(ServiceError):
            next(client.events())
        with Client(service.url, token="open-sesame") as client:
            assert client.learn(IMAGES[0], "x").accepted == 1
            assert client.ready()
        for token in ("", "two\nlines", "ключ", " a "):
            with pytest.raises(InputError, match="token"):
                Client(service.url, token=token)


def test_a_service_below_a_path():
    with Serving(Toy((1, 8, 8)), prefix="/pets") as service, Client(service.url + "/") as client:
        assert client.learn(IMAGES[0], "x").accepted == 1
        assert client.url == service.url


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://a", "http://", "http://a:b", "http://[", "http://a/?b=c"])
def test_addresses_that_are_none(url):
    with pytest.raises(InputError, match=re.escape(repr(url))):
        Client(url)


def test_one_connection_is_kept_and_each_thread_has_its_own(toy, service, client):
    for _ in range(5):
        client.status()
    assert len(service.clients) == 1
    threads = [threading.Thread(target=client.learn, args=(IMAGES, str(row))) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(toy.samples) == 8 * len(IMAGES)
    assert len(service.clients) <= 9


def test_a_kept_connection_that_was_closed_meanwhile():
    with Serving(Toy((1, 8, 8))) as service, Client(service.url) as client:
        client.learn(IMAGES[0], "x")
        service.stop()
        service.start()
        assert client.learn(IMAGES[0], "x").repeated == 0
        assert client.status()["accepted"] == 2


def test_a_connection_that_breaks_while_it_is_made(toy, client, clock, monkeypatch):
    connect, tries = socket.create_connection, []

    def reset(*given, **more):
        tries.append(given)
        if len(tries) < 3:
            raise ConnectionResetError(104, "Connection reset by peer")
        return connect(*given, **more)

    monkeypatch.setattr(socket, "create_connection", reset)
    assert client.learn(IMAGES[0], "x").accepted == 1
    assert len(toy.samples) == 1


EVENTS = (
    b': hello\n\nevent: status\ndata: {"learnt": 1}\n\n: still there\n\nevent: class\r\ndata: {"label": "\xc3\xa4"}'
    b'\r\n\r\ndata: {"a":\ndata: 1}\n\nevent: point\ndata: {"cut'
)


class Odd(BaseHTTPRequestHandler):
    """Another program at that address; it refuses before it has heard all."""

    def do_GET(self):
        self.send_response(200 if self.path != "/readyz" else 302)
        self.end_headers()
        self.wfile.write(EVENTS if self.path == "/v1/events" else b"<html>Hello</html>")

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


def test_a_certificate_that_is_not_trusted_is_not_tried_again(client, clock, monkeypatch):
    def connect(*_, **__):
        raise ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(ServiceError, match="self-signed") as caught:
        client.learn(IMAGES[0], "x")
    assert caught.value.code == "not_trusted"
    assert clock.pauses == []


def test_neither_torch_nor_numpy_is_needed(service, tmp_path):
    (tmp_path / "a.png").write_bytes(png(IMAGES[0]))
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


def test_many_samples_are_several_requests_with_a_key_each(toy, client):
    images = np.zeros((600, 1, 8, 8), np.uint8)
    receipt = client.learn(images, [str(row % 100) for row in range(600)], key="mine")
    assert receipt == Receipt(600, 1, 600, 0)
    assert toy.requests == [("mine", 256), ("mine:256", 256), ("mine:512", 88)]
    assert labels(toy) == [str(row % 100) for row in range(600)]


def test_large_pictures_are_fewer_at_a_time(toy, client):
    client.learn([png(IMAGES[0]) + bytes(BYTES // 3)] * 4, "large")  # four thirds of it each in base64
    assert [count for _, count in toy.requests] == [2, 2]


def test_no_more_at_a_time_than_the_queue_holds(toy, client):
    toy.queue_limit = 3
    client.learn(IMAGES, "x")
    assert [count for _, count in toy.requests] == [3, 2, 2]
    client.learn(IMAGES, "x", key="k")  # under a key of ours more may have been accepted before
    assert toy.requests[3:] == [("k", 7), ("k", 3), ("k:3", 4), ("k:3", 2), ("k:5", 2)]


def test_a_service_that_takes_less_gets_halves(toy, client):
    toy.batch = 2
    assert client.learn(IMAGES, list("abcdefg"), key="k") == Receipt(7, 1, 7, 0)
    assert labels(toy) == list("abcdefg")
    assert [key for key, count in toy.requests if count <= 2] == ["k", "k:1", "k:3", "k:5"]
    assert len(client.predict(IMAGES)) == 7


def test_a_single_sample_that_is_too_much(toy, client):
    toy.batch = 0
    with pytest.raises(ServiceError, match=r"^images\[0\]") as caught:
        client.learn(IMAGES[:2], "x")
    assert (caught.value.status, caught.value.code) == (413, "too_many")


# once


@pytest.mark.parametrize("trouble", ["commit", "drop"])
def test_a_connection_that_breaks_before_or_after_it_is_kept(toy, service, client, clock, trouble):
    service.teaching("", trouble, trouble, trouble)
    for label in "abc":
        client.learn(IMAGES[0], label)
    assert labels(toy) == ["a", "b", "c"]
    keys = service.keys
    assert len(keys) == 6
    assert len(set(keys)) == 3
    assert len(set(keys[1:5])) == 1


def test_the_same_call_again_with_a_key(toy, client):
    first = client.learn(IMAGES, "x", key="today")
    again = client.learn(IMAGES, "x", key="today")
    assert (first, again) == (Receipt(7, 1, 7, 0), Receipt(7, 1, 7, 7))
    assert len(toy.samples) == 7
    with pytest.raises(ServiceError, match="This key") as caught:
        client.learn(IMAGES, "y", key="today")
    assert (caught.value.status, caught.value.code) == (422, "key_reused")


@pytest.mark.parametrize("before, after", [(20, 1000), (1000, 20), (5, 7), (7, 5), (1, 64), (64, 1)])
def test_the_same_call_again_after_a_restart_with_another_queue(toy, service, client, before, after):
    toy.queue_limit = before
    service.teaching("", "", "", FULL)
    with contextlib.suppress(ServiceError):  # where it needs four requests
        client.learn(MANY, LETTERS, key="q")
    service.teaching()
    toy.queue_limit, there = after, len(toy.samples)
    assert client.learn(MANY, LETTERS, key="q") == Receipt(64, 1, 64, there)
    assert labels(toy) == LETTERS


def test_other_samples_under_a_key_that_was_used_in_parts(toy, client):
    toy.queue_limit = 20
    client.learn(MANY, LETTERS, key="q")
    toy.queue_limit = 1000
    with pytest.raises(ServiceError) as caught:
        client.learn(MANY[::-1], LETTERS, key="q")
    assert (caught.value.status, caught.value.code) == (422, "key_reused")
    assert labels(toy) == LETTERS


# pictures that cannot be read


@pytest.fixture
def pictures(tmp_path):
    """Eight, of which the sixth is broken."""
    paths = [tmp_path / f"{row}.png" for row in range(8)]
    for row, path in enumerate(paths):
        path.write_bytes(b"nothing" if row == 5 else png(IMAGES[0]))
    return paths


def test_a_picture_that_the_service_cannot_read_is_named(toy, service, client, pictures):
    toy.queue_limit = 4
    with pytest.raises(ServiceError) as caught:
        client.learn(pictures, "x")
    assert str(caught.value).startswith(str(pictures[5]))
    assert "4 of 8" in str(caught.value)
    assert service.paths.count("/v1/learn") == 2  # halves would not help


@pytest.mark.parametrize(
    "troubles, accepted",
    [([MANY_AT_A_TIME] * 2 + ["", "", MANY_AT_A_TIME], 4), ([MANY_AT_A_TIME], 4), ([], 0)],
    ids=["two", "four", "all"],
)
def test_left_out_pictures_leave_the_others_at_their_places(toy, service, client, pictures, troubles, accepted):
    service.teaching(*troubles)
    strict = client.upload(pictures, LETTERS[:8], "k")
    with pytest.raises(ServiceError):
        strict.send()
    assert (strict.failed_at, strict.skipped, strict.unconfirmed) == (5, [], range(0))
    assert strict.accepted == len(toy.samples) == accepted
    pictures[6].unlink()  # nor can this one be read any more
    for repeated in (strict.accepted, 6):
        upload = client.upload(pictures, LETTERS[:8], "k", skip_bad=True)
        upload.send()
        assert upload.receipt == Receipt(6, 1, 6, repeated)
        assert sorted(upload.skipped) == [5, 6]
    assert labels(toy) == list("012347")


def test_nothing_is_left_out_unasked(client, pictures):
    pictures[2].unlink()
    upload = client.upload(pictures, LETTERS[:8], size=2)
    with pytest.raises(DataError, match=r"2\.png cannot be read"):
        upload.send()
    assert (upload.failed_at, upload.accepted, upload.unconfirmed) == (2, 2, range(0))


# doubt


@pytest.mark.parametrize(
    "troubles, doubt",
    [
        ([FULL], range(0)),  # the service's word
        ([AWAY] * 9, range(0)),
        (["drop"] * 9, range(7)),
        (["commit"] * 9, range(7)),
        (["proxy"] * 9, range(7)),
        (["commit", "commit", AWAY, AWAY], range(7)),  # it may have been there before the service began to stop
    ],
)
def test_only_what_got_no_answer_is_in_doubt(toy, service, client, clock, troubles, doubt):
    service.teaching(*troubles)
    client.patience = 0.15
    upload = client.upload(IMAGES, "x" * 7)
    with pytest.raises(ServiceError):
        upload.send()
    assert (upload.accepted, upload.unconfirmed) == (0, doubt)
    service.teaching()
    upload.confirm()
    assert upload.accepted == len(doubt)
    assert len(toy.samples) == len(doubt)
