"""`iblurry live serve`, `send` and `ask`: what is sent and asked, in which order; mistakes in sentences."""

from __future__ import annotations

import json
import os
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from iblurry.cli.live.serve import IDLE_UPDATES
from iblurry.data.load import load
from iblurry.data.sources.arrays import save
from iblurry.errors import InputError
from iblurry.live.quota import Limits
from iblurry.rng import Rng
from tests.live.stand_in import StandIn


def contents(*paths):
    return [path.read_bytes() for path in paths]


# send


def test_a_folder_by_class(call, service, pets):
    said = call("live", "send", "pets", "--in-order")
    assert said.code == 0
    files = contents(pets / "cat/1.png", pets / "cat/more/2.PNG", pets / "dog/3.jpg", pets / "dog/4.bmp")
    assert service.samples == list(zip(["cat", "cat", "dog", "dog"], files, strict=True))
    right = "Predicted correctly before they were learnt: 75.0 % of all"
    assert said.out == f"4 samples accepted; 4 learnt, 2 classes\n{right}\n"
    again = call("live", "send", "pets").out  # more were learnt than the last 5
    assert again == f"4 samples accepted; 8 learnt, 2 classes\n{right}, 80.0 % of the last 5\n"


def test_one_sample_of_one_class(call, service, pets):
    assert call("live", "send", "pets/cat/1.png", "--label", "cat").out.startswith(
        "1 sample accepted; 1 learnt, 1 class\n"
    )


def test_the_order_comes_from_the_seed(call, service, pets):
    for seed in (1, 2, 1):
        assert call("live", "send", pets, "--seed", seed).code == 0
    files = contents(pets / "cat/1.png", pets / "cat/more/2.PNG", pets / "dog/3.jpg", pets / "dog/4.bmp")
    orders = [[files[row] for row in Rng(seed).permutation("send", 0, 4)] for seed in (1, 2, 1)]
    assert orders[0] != orders[1]
    assert [content for _, content in service.samples] == [one for order in orders for one in order]


def test_the_training_part_where_there_is_one(call, service, pets, here):
    (here / "both").mkdir()
    pets.rename(here / "both" / "train")
    (here / "both" / "test").mkdir()
    assert call("live", "send", "both").code == 0
    assert sorted(label for label, _ in service.samples) == ["cat", "cat", "dog", "dog"]


def test_pictures_of_one_label(call, service, pets):
    assert call("live", "send", pets / "cat", pets / "dog/3.jpg", "--label", "pet", "--in-order").code == 0
    assert service.samples == [
        ("pet", content) for content in contents(pets / "cat/1.png", pets / "cat/more/2.PNG", pets / "dog/3.jpg")
    ]


def test_a_data_set_by_its_name(call, service):
    digits = load("digits")
    said = call("live", "send", "digits", "--limit", 100, "--json")
    rows = Rng(1).permutation("send", 0, len(digits.train))[:100]
    assert service.samples == [
        (digits.classes[digits.train.labels[row]], digits.train.images[row].tobytes()) for row in rows
    ]
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


def test_an_npz(call, service, here):
    data = load("shapes:classes=3,train=2,test=1,size=8,channels=1")
    save(data, here / "shapes.npz")
    assert call("live", "send", "shapes.npz", "--in-order").code == 0
    assert [content for _, content in service.samples] == [image.tobytes() for image in data.train.images]


def test_it_waits_until_all_is_learnt_or_not(call, service, pets, monkeypatch):
    service.learnt = 0
    looks = []

    def status():
        looks.append(service.learnt)
        service.learnt = min(len(service.samples), service.learnt + 1)
        return StandIn.status(service)

    service.status = status
    assert "4 samples accepted; 4 learnt" in call("live", "send", "pets").out
    before = len(looks)
    assert before >= 5
    assert "4 samples accepted; 5 learnt" in call("live", "send", "pets", "--no-wait").out


def test_a_bar_on_a_terminal_and_lines_elsewhere(call, service, monkeypatch):
    monkeypatch.setattr("iblurry.cli.live.send.POLL_SECONDS", -1)
    monkeypatch.setattr("iblurry.launch.progress.PAUSE", -1)
    assert re.findall(r"\d+ of 100", call("live", "send", "digits", "--limit", 100).err) == ["64 of 100", "100 of 100"]
    service.status = lambda: StandIn.status(service) | {"queue": 17}
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = call("live", "send", "digits", "--limit", 100)
    assert "17 wait to be learnt" in said.err
    assert "Learning" in said.err
    assert said.out.startswith("100 samples accepted")


def test_a_service_that_learns_no_more(refused, service, pets):
    service.learnt, service.state = 1, "stalled"
    said = refused("live", "send", "pets")
    assert "It is stalled." in said
    assert "4 of 4" in said


def test_images_of_another_shape(refused, service, here):
    said = refused("live", "send", "shapes:classes=3,train=2,test=1,size=16,channels=3")
    assert "1x8x8" in said
    assert "iblurry live serve --image 3x16x16" in said
    assert service.requests == []


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
        ("live ask pets/cat/1.png", "Nothing is learnt"),
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


def test_a_table_of_answers(call, service, pets, here):
    call("live", "send", "pets", "--in-order")
    np.save(here / "two.npy", np.zeros((2, 1, 8, 8), np.uint8))
    said = call("live", "ask", "pets/dog/3.jpg", "pets/cat/1.png", "two.npy", "--top", 2)
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[0] == ["image", "label", "probability", "id"]
    assert rows[1:3] == [["pets/dog/3.jpg", "dog", "90.0", "%", "00000000"], ["cat", "1.0", "%"]]
    assert [row[:2] for row in rows[3:9:2]] == [["pets/cat/1.png", "cat"], ["two.npy[0]", "cat"], ["two.npy[1]", "cat"]]
    assert said.out.endswith("Samples the model had learnt: 4\n")


def test_an_unknown_answer_says_so_before_its_guess(call, service, pets):
    call("live", "send", "pets", "--in-order")
    service.threshold = 0.95
    rows = [line.split() for line in call("live", "ask", "pets/dog/3.jpg", "--top", 1).out.splitlines()]
    assert rows[1:3] == [["pets/dog/3.jpg", "unknown", "below", "95.0", "%", "00000000"], ["dog", "90.0", "%"]]


def test_answers_in_json(call, service, pets):
    call("live", "send", "pets", "--in-order")
    (answer,) = json.loads(call("live", "ask", "pets/dog/3.jpg", "--json").out)
    assert answer == {
        "image": "pets/dog/3.jpg",
        "label": "dog",
        "probability": 0.9,
        "top": [{"label": "dog", "probability": 0.9}, {"label": "cat", "probability": 0.01}],
        "model": 4,
        "id": "00000000",
        "unknown": False,
        "threshold": None,
    }


def test_a_token(call, refused, service, pets, monkeypatch):
    service.token = "sesame"
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

    for name, content in {
        "settings": {"Settings": SimpleNamespace(of=of)},
        "service": {"Service": service},
        "http.server": {"serve": serve},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, f"iblurry.live.{name}", module)
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
    words = "--method er --network mlp --memory 9 --image 1x8x8 --max-classes 7 --seed 0 --updates-per-sample 1/4"
    more = (
        "--batch 8 --measure-every 3 --device cuda --threads 2 --data-dir d --host 0.0.0.0 --port 80 --queue 5 --json "
        "--idle-updates 0 --unknown-rate 0.1"
    )
    said = call("live", "serve", *words.split(), *more.split())
    assert json.loads(said.out) == {"url": "http://0.0.0.0:80", "pid": os.getpid()}
    assert said.out.count("\n") == 1
    assert backend.given == {
        "method": "er",
        "network": "mlp",
        "memory": 9,
        "image": (1, 8, 8),
        "max_classes": 7,
        "seed": 0,
        "updates_per_sample": "1/4",
        "batch": 8,
        "measure_every": 3,
        "device": "cuda",
        "threads": 2,
    }
    assert (backend.limits, backend.token, backend.host, backend.port) == (Limits(queue=5), "sesame", "0.0.0.0", 80)
    assert (backend.idle_updates, backend.unknown_rate) == (0, 0.1)


def test_settings_are_refused_in_a_sentence(refused, backend):
    assert refused("live", "serve", "--method", "nothing") == "iblurry: No such method.\n"


def test_the_extra_is_asked_for(refused, monkeypatch):
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
