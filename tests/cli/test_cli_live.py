"""`iblurry live serve`, `send` and `ask`: what is sent and asked, in which order; mistakes in sentences.

And when something comes between: interruptions, a service that is away, pictures that cannot be read.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from iblurry.cli.live.serve import IDLE_UPDATES
from iblurry.data.load import load
from iblurry.errors import InputError, ServiceError
from iblurry.live.client import Client
from iblurry.live.http.pictures import PictureDecoder
from iblurry.live.quota import Limits, Refusal
from iblurry.rng import Rng
from tests.live.serving import Serving
from tests.live.toy import Toy


@pytest.fixture
def files(pets):
    """The pictures of pets in their order, as the service stores them."""
    return decoded(*(pets / name for name in ("cat/1.png", "cat/more/2.PNG", "dog/3.jpg", "dog/4.bmp")))


def decoded(*paths):
    decoder = PictureDecoder((1, 8, 8), Limits())
    return [decoder.decode(path.read_bytes(), "it").tobytes() for path in paths]


def seen(toy):
    return [(sample.label, sample.pixels.tobytes()) for sample in toy.samples]


MEASURED = {"accuracy": 0.75, "recent_accuracy": 0.8, "window": 5}

# send


def test_a_folder_by_class(call, toy, pets, files):
    toy.changes = MEASURED
    said = call("live", "send", "pets", "--in-order")
    assert said.code == 0
    assert seen(toy) == list(zip(["cat", "cat", "dog", "dog"], files, strict=True))
    (pets / "dog" / "5.png").symlink_to(pets / "nowhere.png")
    (pets / "dog" / "6.png").mkdir()  # neither is a file
    right = "Predicted correctly before they were learnt: 75.0 % of all"
    assert said.out == f"4 samples accepted; 4 learnt, 2 classes\n{right}\n"
    again = call("live", "send", "pets").out  # more were learnt than the last 5
    assert again == f"4 samples accepted; 8 learnt, 2 classes\n{right}, 80.0 % of the last 5\n"


def test_the_order_comes_from_the_seed(call, toy, pets, files):
    for seed in (1, 2, 1):
        assert call("live", "send", pets, "--seed", seed).code == 0
    orders = [[files[row] for row in Rng(seed).permutation("send", 0, 4)] for seed in (1, 2, 1)]
    assert orders[0] != orders[1]
    assert [content for _, content in seen(toy)] == [one for order in orders for one in order]


def test_the_training_part_where_there_is_one(call, toy, pets, here):
    (here / "both").mkdir()
    pets.rename(here / "both" / "train")
    (here / "both" / "test").mkdir()
    assert call("live", "send", "both").code == 0
    assert sorted(sample.label for sample in toy.samples) == ["cat", "cat", "dog", "dog"]


def test_pictures_of_one_label(call, toy, pets, files):
    assert call("live", "send", pets / "cat", pets / "dog/3.jpg", "--label", "pet", "--in-order").code == 0
    assert seen(toy) == [("pet", content) for content in files[:3]]
    assert call("live", "send", "pets/cat/1.png", "--label", "cat").out.startswith("1 sample accepted; 4 learnt, 2 cl")


def digits_as_sent(count):
    """The first samples that `send digits` sends."""
    digits = load("digits")
    rows = Rng(1).permutation("send", 0, len(digits.train))[:count]
    return [(digits.classes[digits.train.labels[row]], digits.train.images[row].tobytes()) for row in rows]


def test_a_data_set_by_its_name(call, service, toy):
    toy.changes = MEASURED
    said = call("live", "send", "digits", "--limit", 100, "--json")
    assert seen(toy) == digits_as_sent(100)
    assert json.loads(said.out) == {
        "url": service.url,
        "accepted": 100,
        "repeated": 0,
        "first": 1,
        "last": 100,
        "left_out": [],
        "learnt": 100,
        "queue": 0,
        "classes": 10,
        "accuracy": 0.75,
        "recent_accuracy": 0.8,
        "held_out": 0,
        "held_out_accuracy": None,
    }


def test_it_waits_until_all_is_learnt_or_not(call, toy, pets, monkeypatch):
    toy.learnt = 0
    looks = []

    def status():
        looks.append(toy.learnt)
        toy.learnt = min(len(toy.samples), toy.learnt + 1)
        return Toy.status(toy)

    monkeypatch.setattr(toy, "status", status)
    assert "4 samples accepted; 4 learnt" in call("live", "send", "pets").out
    before = len(looks)
    assert before >= 5
    said = call("live", "send", "pets", "--no-wait").out
    assert f"4 samples accepted; {toy.learnt} learnt" in said
    assert toy.learnt < 8


def test_a_bar_on_a_terminal_and_lines_elsewhere(call, toy, monkeypatch):
    monkeypatch.setattr("iblurry.cli.live.send.POLL_SECONDS", -1)
    monkeypatch.setattr("iblurry.launch.progress.PAUSE", -1)
    assert re.findall(r"\d+ of 100", call("live", "send", "digits", "--limit", 100).err) == ["64 of 100", "100 of 100"]
    toy.changes = {"queue": 17}
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = call("live", "send", "digits", "--limit", 100)
    assert "17 wait to be learnt" in said.err
    assert "Learning" in said.err
    assert said.out.startswith("100 samples accepted")


def test_a_service_that_learns_no_more(refused, toy, pets):
    toy.learnt, toy.changes = 1, {"state": "stalled", "sentence": "It is stalled."}
    said = refused("live", "send", "pets")
    assert "It is stalled." in said
    assert "4 of 4" in said


def test_images_of_another_shape(refused, service, toy, here):
    said = refused("live", "send", "shapes:classes=3,train=2,test=1,size=16,channels=3")
    assert "1x8x8" in said
    assert "iblurry live serve --image 3x16x16" in said
    assert toy.samples == []
    assert "/v1/learn" not in service.paths


@pytest.mark.parametrize(
    "line, named",
    [
        ("live send", "PLACE"),
        ("live send digts", "Did you mean 'digits'?"),
        ("live send nowhere/", "nowhere/"),
        ("live send pets/cat/1.png", "--label"),
        ("live send pets/cat/notes.txt", "pets/cat/notes.txt"),
        ("live send nowhere.png --label cat", "nowhere.png"),
        ("live send empty", "empty/<class>/"),
        ("live send . --label x --limit 0", "--limit"),
        ("live send empty --label x", ".png, .jpg"),
        ("live send pets --url nowhere", "'nowhere'"),
        ("live send pets --resume-key ä", "1 to 180"),
        ("live ask", "IMAGE"),
        ("live ask nowhere.png", "nowhere.png"),
        ("live ask nowhere.npy", "nowhere.npy"),
        ("live ask pets/cat/1.png", "Nothing has been learnt"),
        ("live ask pets/cat/1.png --top 0", "--top"),
        ("live ask pets/cat/1.png --url http://127.0.0.1:1", "Connection refused"),
        ("live serve --image 3x32", "3x32"),
        ("live serve --image 3x0x32", "3x0x32"),
        ("live serve --image grey", "grey"),
        ("live serve --data-dir pets/cat/1.png", "pets/cat/1.png"),
        ("live serve --port x", "--port"),
    ],
)
def test_mistakes(refused, service, pets, here, line, named):
    (here / "empty").mkdir()
    assert named in refused(*line.split())


# ask


def test_a_table_of_answers(call, toy, pets, here):
    call("live", "send", "pets", "--in-order")
    toy.shares = (0.01, 0.9)
    np.save(here / "two.npy", np.zeros((2, 1, 8, 8), np.uint8))
    said = call("live", "ask", "pets/dog/3.jpg", "pets/cat/1.png", "two.npy", "--top", 2)
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[0] == ["image", "label", "probability", "id"]
    assert rows[1][:4] == ["pets/dog/3.jpg", "dog", "90.0", "%"]
    assert rows[2] == ["cat", "1.0", "%"]
    assert [row[:2] for row in rows[3:9:2]] == [["pets/cat/1.png", "dog"], ["two.npy[0]", "dog"], ["two.npy[1]", "dog"]]
    assert said.out.endswith("Samples the model had learnt: 4\n")
    toy.threshold = 0.95  # an unknown answer says so before its guess
    rows = [line.split() for line in call("live", "ask", "pets/dog/3.jpg", "--top", 1).out.splitlines()]
    assert rows[1][:5] == ["pets/dog/3.jpg", "unknown", "below", "95.0", "%"]
    assert rows[2] == ["dog", "90.0", "%"]


def test_answers_in_json(call, toy, pets):
    call("live", "send", "pets", "--in-order")
    toy.shares = (0.01, 0.9)
    (answer,) = json.loads(call("live", "ask", "pets/dog/3.jpg", "--json").out)
    assert answer == {
        "image": "pets/dog/3.jpg",
        "label": "dog",
        "probability": 0.9,
        "top": [{"label": "dog", "probability": 0.9}, {"label": "cat", "probability": 0.01}],
        "model": 4,
        "id": answer["id"],
        "unknown": False,
        "threshold": None,
    }


def test_a_token(call, refused, pets, monkeypatch):
    monkeypatch.setattr("iblurry.live.http.guard.FAILURE_SECONDS", 0.0)
    with Serving(Toy((1, 8, 8)), token="sesame") as service:
        monkeypatch.setenv("IBLURRY_URL", service.url)
        for verb in (["live", "send", "pets"], ["live", "ask", "pets/cat/1.png"]):
            assert "needs a token" in refused(*verb)
            assert "refused this token" in refused(*verb, "--token", "other")
            assert call(*verb, "--token", "sesame").code == 0
            with monkeypatch.context() as patch:
                patch.setenv("IBLURRY_TOKEN", "sesame")
                assert call(*verb).code == 0


# serve


@pytest.fixture
def backend(monkeypatch):
    """The learner's side and the server's, which only remember what they were told."""
    told = SimpleNamespace()

    def of(folder, **given):
        told.folder, told.given = folder, given
        if given.get("method") == "nothing":
            raise InputError("No such method.")
        about = {"method": "clib", "network": "mlp", "image": (1, 8, 8), "memory": 500, "max_classes": 100}
        return SimpleNamespace(**about)

    def service(folder, settings, limits, *, idle_updates, unknown_rate):
        told.limits, told.idle_updates, told.unknown_rate = limits, idle_updates, unknown_rate
        return SimpleNamespace(folder=folder, settings=settings)

    def serve(service, *, host, port, token, on_ready):
        told.host, told.port, told.token = host, port, token
        on_ready(f"http://{host}:{port}")

    for module, name, replaced in (
        ("settings", "Settings", SimpleNamespace(of=of)),
        ("service", "Service", service),
        ("http.server", "serve", serve),
    ):
        monkeypatch.setitem(sys.modules, f"iblurry.live.{module}", SimpleNamespace(**{name: replaced}))
    monkeypatch.setattr("iblurry.cli.live.serve.LIBRARIES", ())
    monkeypatch.delenv("IBLURRY_TOKEN", raising=False)
    return told


def test_serve_passes_on_only_what_was_given(call, backend, here):
    said = call("live", "serve")
    assert (said.code, said.err) == (0, "")
    for word in ("http://127.0.0.1:8000", "/docs", "clib", "mlp", "1x8x8", "500", "100 classes", "in live"):
        assert word in said.out
    assert (str(backend.folder), backend.given, backend.limits) == ("live", {}, Limits())
    assert (backend.host, backend.port, backend.token) == ("127.0.0.1", 8000, None)
    assert (backend.idle_updates, backend.unknown_rate) == (IDLE_UPDATES, 0.05)


def test_serve_with_everything(call, backend, monkeypatch):
    monkeypatch.setenv("IBLURRY_TOKEN", "sesame")
    settings = {
        "method": "er",
        "network": "mlp",
        "memory": 9,
        "image": (1, 8, 8),
        "max_classes": 7,
        "seed": 0,
        "updates_per_sample": "1/4",
        "batch": 8,
        "measure_every": 3,
        "initialise": "keep",
        "freeze": "body",
        "device": "cuda",
        "threads": 2,
    }
    words = [f"--{name.replace('_', '-')}={value}" for name, value in (settings | {"image": "1x8x8"}).items()]
    more = "--augment none --data-dir d --host 0.0.0.0 --port 80 --queue 5 --json --idle-updates 0 --unknown-rate 0.1"
    said = call("live", "serve", *words, *more.split())
    assert json.loads(said.out) == {"url": "http://0.0.0.0:80", "pid": os.getpid()}
    assert said.out.count("\n") == 1
    assert backend.given == settings | {"augment": []}
    assert (backend.limits, backend.token, backend.host, backend.port) == (Limits(queue=5), "sesame", "0.0.0.0", 80)
    assert (backend.idle_updates, backend.unknown_rate) == (0, 0.1)


def test_settings_and_the_extra_are_checked_first(refused, backend, monkeypatch):
    assert refused("live", "serve", "--method", "nothing") == "iblurry: No such method.\n"
    monkeypatch.setattr("iblurry.cli.live.serve.LIBRARIES", ("json", "no_such_library"))
    assert "no_such_library; run: pip install 'iblurry[live]'" in refused("live", "serve")


def test_the_token_in_a_file(call, refused, backend, here, monkeypatch):
    (here / "token").write_text("from-the-file\n")
    (here / "empty").write_text(" \n")
    assert call("live", "serve", "--token-file", "token").code == 0
    assert backend.token == "from-the-file"
    monkeypatch.setenv("IBLURRY_TOKEN", "from-the-environment")
    call("live", "serve", "--token-file", "token")
    assert backend.token == "from-the-file"
    call("live", "serve")
    assert backend.token == "from-the-environment"
    monkeypatch.setenv("IBLURRY_TOKEN_FILE", "token")
    call("live", "serve")
    assert backend.token == "from-the-file"
    assert "give one of them" in refused("live", "serve", "--token", "t")
    assert "is empty" in refused("live", "serve", "--token-file", "empty")
    assert "'nowhere'" in refused("live", "ask", "--token-file", "nowhere", "x.png")


# interruptions


def pressed(monkeypatch, *, at, times=1):
    """Ctrl-C when the service has done what it was asked but before its answer is heard."""
    call, calls = Client._call, []

    def interrupted(self, method, path, *rest):
        answer = call(self, method, path, *rest)
        calls.extend([path] if method == "POST" else [])
        if method == "POST" and at <= len(calls) < at + times:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(Client, "_call", interrupted)


def test_an_interruption_says_what_was_accepted_and_the_same_command_sends_the_rest(call, refused, toy, monkeypatch):
    with monkeypatch.context() as patch:
        pressed(patch, at=3)
        said = call("live", "send", "digits", "--limit", 300, "--resume-key", "today")
    assert (said.code, said.out) == (130, "")
    assert "192 of 300" in said.err
    assert len(toy.samples) == 192
    again = call("live", "send", "digits", "--limit", 300, "--resume-key", "today")
    assert again.out.startswith("300 samples accepted, 192 of which were accepted before; 300 learnt")
    assert seen(toy) == digits_as_sent(300)
    assert "--resume-key today" in refused("live", "send", "digits", "--seed", 2, "--resume-key", "today")
    assert len(toy.samples) == 300


def test_two_interruptions_leave_some_in_doubt(call, toy, monkeypatch):
    pressed(monkeypatch, at=2, times=2)
    said = call("live", "send", "digits", "--limit", 300)
    assert said.code == 130
    assert "64 of 300 samples are accepted, and perhaps some of the next 64" in said.err
    assert len(toy.samples) == 128


def test_an_interruption_while_it_learns(call, service, monkeypatch):
    monkeypatch.setattr(Client, "wait", Mock(side_effect=KeyboardInterrupt))
    said = call("live", "send", "digits", "--limit", 100)
    assert "100 of 100" in said.err
    assert said.code == 130


def test_ctrl_c_while_the_queue_is_full(service, toy, program, here):
    service.teaching("", *[Refusal(429, "queue_full", "The queue is full.", retry_after=2)] * 99)
    command = [*program, "live", "send", "digits", "--limit", "128"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while service.paths.count("/v1/learn") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("iblurry: Interrupted: 64 of 128")
    assert len(toy.samples) == 64


# a service that is away


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while somebody sleeps."""
    time = SimpleNamespace(now=0.0, monotonic=lambda: time.now)
    time.sleep = lambda seconds: setattr(time, "now", time.now + seconds)
    monkeypatch.setattr("iblurry.live.client.time", time)
    return time


def test_it_waits_for_a_service_that_is_being_started(call, toy, pets, clock, monkeypatch):
    status = Client.status

    def later(client):
        if clock.now < 30:
            raise ServiceError("No answer.")
        return status(client)

    monkeypatch.setattr(Client, "status", later)
    said = call("live", "send", "pets")
    assert said.code == 0
    assert "300 s" in said.err
    assert len(toy.samples) == 4
    clock.now = 0
    assert call("live", "ask", pets / "cat/1.png").err == "iblurry: No answer.\n"  # a question waits for nobody


def test_a_service_that_never_comes(call, pets, clock):
    said = call("live", "send", "pets", "--url", "http://127.0.0.1:1")
    assert said.code == 2
    told, end = said.err.splitlines()
    assert "300 s" in told
    assert re.search(r"Connection refused.* 29\d s", end)


def test_a_service_that_goes_away_for_good_while_it_learns(call, toy, pets, clock, monkeypatch):
    toy.learnt, status = 0, Client.status

    def lost(client):
        if clock.now > 1000:  # it may learn as slowly as it likes
            raise ServiceError("No answer.")
        return status(client)

    monkeypatch.setattr(Client, "status", lost)
    monkeypatch.setattr("iblurry.live.client.POLL_SECONDS", 5)
    said = call("live", "send", "pets")
    assert (said.code, said.out) == (2, "")
    assert re.search(r"29\d s.* 4 of 4 samples are accepted; they will be learnt", said.err)
    assert 1290 < clock.now < 1310


# pictures that cannot be read


@pytest.fixture
def many(here):
    """151 pictures in three folders."""
    for row in range(151):
        path = here / "many" / "abc"[row % 3] / f"{row:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (row, 0, 0)).save(path)
    return here / "many"


def test_a_broken_picture_in_the_middle_can_be_skipped_and_each_other_counts_once(call, refused, toy, many):
    broken = many / "b" / "100.png"
    broken.write_bytes(b"nothing")
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
    assert (again["accepted"], again["repeated"]) == (150, 150)
    assert again["left_out"] == [str(broken.relative_to(many.parent))]
    good = sorted(decoded(*(path for path in many.rglob("*.png") if path != broken)))
    assert sorted(content for _, content in seen(toy)) == good


def test_only_the_first_few_are_named_and_a_place_without_any_is_refused(call, refused, service, many):
    names = [f"many{os.sep}{place}" for place in (f"a{os.sep}000.png", f"a{os.sep}003.png", f"b{os.sep}001.png")]
    for row in range(5):
        (many / "abc"[row % 3] / f"{row:03}.png").write_bytes(b"")
    assert "000.png" in refused("live", "send", names[0], "--label", "x", "--skip-bad")
    told = call("live", "send", "many", "--in-order", "--skip-bad").err
    assert f"5 ({', '.join(names)}, and 2 more)" in told


# too large


@pytest.fixture
def colourful(monkeypatch):
    monkeypatch.delenv("IBLURRY_TOKEN", raising=False)
    toy = Toy((3, 4, 6))
    with Serving(toy) as service:
        monkeypatch.setenv("IBLURRY_URL", service.url)
        yield toy


@pytest.fixture(scope="module")
def photo():
    """What a camera writes: more than 16 million pixels, lying on their side."""
    width, height, exif, file = 4200, 4000, Image.Exif(), io.BytesIO()
    down = Image.linear_gradient("L").resize((width, height))
    exif[0x0112] = 6
    Image.merge("RGB", [down.rotate(180), down, Image.new("L", (width, height), 90)]).save(file, "JPEG", exif=exif)
    return file.getvalue()


@pytest.fixture
def sea(here):
    """A folder of a class, with a small picture, 2.png."""
    folder = here / "roll" / "sea"
    folder.mkdir(parents=True)
    Image.new("RGB", (9, 7)).save(folder / "2.png")
    return folder


def test_pictures_of_a_camera_are_made_smaller_here_as_the_service_would(call, colourful, sea, photo):
    (sea / "1.jpg").write_bytes(photo)
    assert call("live", "send", "roll", "--in-order").code == 0
    pixels = PictureDecoder((3, 4, 6), Limits(pixels=24_000_000)).decode(photo, "it")
    assert seen(colourful) == [("sea", pixels.tobytes()), ("sea", bytes(72))]
    (answer,) = json.loads(call("live", "ask", "roll/sea/1.jpg", "--json").out)
    assert answer["image"] == "roll/sea/1.jpg"


@pytest.mark.slow
def test_it_needs_neither_torch_nor_the_extra(colourful, here, photo):
    (here / "sea.jpg").write_bytes(photo)
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
    assert [(sample.label, sample.pixels.shape) for sample in colourful.samples] == [("noise", (3, 4, 6))]


def test_a_large_picture_that_is_cut_off_is_named(call, refused, colourful, sea, photo):
    (sea / "1.jpg").write_bytes(photo[: len(photo) // 2])
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


# names that are no text


def test_a_folder_whose_name_is_not_utf_8(refused, service, toy, pets):
    strange = os.fsdecode(os.fsencode(pets) + b"/caf\xe9")
    try:
        os.rename(pets / "dog", strange)
    except OSError:
        pytest.skip("names of files are UTF-8 here")
    said = refused("live", "send", "pets")
    assert "caf\\udce9" in said
    assert toy.samples == []
    assert "/v1/learn" not in service.paths
    assert "The label 'caf\\udce9' has U+DCE9" in refused("live", "send", "pets/cat", "--label", "caf\udce9")
