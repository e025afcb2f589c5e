"""The client: every sample once, whatever happens on the way; patience that ends; errors in sentences."""

from __future__ import annotations

import pickle
import socket
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iblurry import Client, InputError
from iblurry.errors import DataError, IblurryError, ServiceError
from iblurry.live.client import Answer, Guess, Receipt
from iblurry.live.client.parcels import BYTES, parcels
from tests.live.stand_in import MEMORY, POINT, StandIn

IMAGES = np.arange(7 * 64, dtype=np.int64).reshape(7, 1, 8, 8).astype(np.uint8)


@pytest.fixture
def service():
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture
def client(service):
    with Client(service.url) as client:
        yield client


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while the client sleeps; how long it slept each time."""

    class Clock:
        pauses: list[float]

        def __init__(self):
            self.pauses = []

        def sleep(self, seconds):
            self.pauses.append(seconds)

        def monotonic(self):
            return sum(self.pauses)

    clock = Clock()
    monkeypatch.setattr("iblurry.live.client.caller.time", clock)
    monkeypatch.setattr("iblurry.live.client.client.time", clock)
    return clock


@pytest.fixture
def nobody():
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


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
    assert str(error) == "The queue is full; send it again later. It stayed so for 6 s."
    assert (error.status, error.code, error.retry_after) == (429, "queue_full", 2)
    assert clock.pauses == [2, 2, 2]
    assert service.samples == []


def test_each_parcel_has_the_whole_patience(service, clock):
    service.queue_limit = 1
    service.troubles = ["busy", "busy", ""] * 7
    with Client(service.url, patience=5) as client:
        assert client.learn(IMAGES, "x").accepted == 7


def test_what_was_accepted_before_an_error_is_said(service, client):
    service.queue_limit = 3
    service.troubles = ["", "", "full"]
    with pytest.raises(ServiceError) as caught:
        client.learn(IMAGES, "x")
    assert str(caught.value) == "The disk is full; make room. The first 6 of 7 samples are accepted."
    assert (caught.value.status, caught.value.code) == (507, "disk_full")
    assert len(service.requests) == 3  # a full disk is not tried again


def test_nobody_there(nobody, clock):
    with Client(nobody, patience=20) as client:
        with pytest.raises(ServiceError, match=r"No answer from http://.* \(Connection refused\); start"):
            client.predict(IMAGES[0])
        assert clock.pauses == []  # only what is taught waits
        with pytest.raises(ServiceError) as caught:
            client.learn(IMAGES[0], "x")
        assert (caught.value.status, caught.value.code) == (None, "unreachable")
        assert 15 < sum(clock.pauses) <= 20
        assert not client.ready()


def test_a_service_that_is_started_later(clock):
    with StandIn() as stand_in:
        port = stand_in.server.server_port
    later = StandIn()

    def sleep(seconds):
        clock.pauses.append(seconds)
        if len(clock.pauses) == 3:
            later.__enter__()
            client._caller._port = later.server.server_port  # that port may be taken by now

    clock.sleep = sleep
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            assert client.learn(IMAGES[0], "x").accepted == 1
    finally:
        later.__exit__()
    assert len(clock.pauses) == 3


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


# the way there


def test_a_token(service):
    service.token = "open sesame"
    with Client(service.url) as client, pytest.raises(ServiceError, match="asks for a token") as caught:
        client.learn(IMAGES[0], "x")
    assert (caught.value.status, caught.value.code) == (401, "token")
    with Client(service.url, token="wrong") as client, pytest.raises(ServiceError):
        next(client.events())
    with Client(service.url, token="open sesame") as client:
        assert client.learn(IMAGES[0], "x").accepted == 1
        assert client.ready()
    for token in ("", "two\nlines", "ключ", " a "):
        with pytest.raises(InputError, match="token has characters that HTTP cannot carry"):
            Client(service.url, token=token)


def test_a_service_below_a_path():
    with StandIn(prefix="/pets") as service, Client(service.url + "/") as client:
        assert client.learn(IMAGES[0], "x").accepted == 1
        assert client.url == service.url


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://a", "http://", "http://a:b", "http://[", "http://a/?b=c"])
def test_addresses_that_are_none(url):
    with pytest.raises(InputError, match="is no address of a service; write http://HOST:PORT"):
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


def test_a_kept_connection_that_was_closed_meanwhile(service, client):
    client.learn(IMAGES[0], "x")
    (kept,) = client._caller._idle
    kept.sock.shutdown(socket.SHUT_RDWR)
    assert client.learn(IMAGES[0], "x").repeated == 0
    assert client.status()["accepted"] == 2


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
        with pytest.raises(ServiceError, match="answers 200 OK, and not as iblurry does; check the address") as caught:
            client.status()
        assert (caught.value.status, caught.value.code) == (200, "strange_answer")
        with pytest.raises(ServiceError, match="answers 302 Found"):
            client.ready()


def test_an_answer_before_all_was_heard(odd):
    with Client(odd) as client:
        client.__dict__["_form"] = (1, 8, 8), 256
        with pytest.raises(ServiceError) as caught:
            client.learn([b"x" * 2**23], "x")
        assert caught.value.status == 413


def test_a_certificate_that_is_not_trusted_is_not_tried_again(service, client, clock, monkeypatch):
    def connect(_):
        raise ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")

    monkeypatch.setattr("http.client.HTTPConnection.connect", connect)
    with pytest.raises(ServiceError, match=r"The certificate of http://127.* is not trusted") as caught:
        client.learn(IMAGES[0], "x")
    assert caught.value.code == "not_trusted"
    assert clock.pauses == []


def test_the_error_travels_between_processes():
    error = pickle.loads(pickle.dumps(ServiceError("No.", status=429, code="queue_full", retry_after=2.0)))
    assert (str(error), error.status, error.code, error.retry_after) == ("No.", 429, "queue_full", 2.0)
    assert isinstance(error, IblurryError)
    assert issubclass(DataError, InputError)


def test_neither_torch_nor_numpy_is_needed(service, tmp_path):
    (tmp_path / "a.png").write_bytes(b"a")
    code = (
        "import sys\nfrom iblurry import Client\n"
        f"with Client({service.url!r}) as client:\n    print(client.learn({str(tmp_path / 'a.png')!r}, 'x').last)\n"
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n[]\n"
