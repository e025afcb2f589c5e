"""`iblurry data`, and a data source of one's own: listed, imported, shown and split."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from iblurry.data.load import SOURCES, load
from iblurry.data.sources.arrays import save
from iblurry.data.sources.mnist import FILES

MINE = """
import numpy as np
from iblurry import Dataset, register_source

@register_source
def bars(*, classes: int = 4, kind: str = "across"):
    "Bars of light, one class for each place."
    images = np.zeros((classes * 12, classes, classes), dtype=np.uint8)
    labels = np.arange(len(images)) % classes
    images[np.arange(len(images)), labels] = 200
    return Dataset.from_arrays(images, labels, images, labels, name="bars")
"""


@pytest.fixture
def fashion(here):
    place = here / "files"
    place.mkdir()
    for name, shape in zip(FILES, [(6, 28, 28), (6,), (2, 28, 28), (2,)], strict=True):
        head = bytes((0, 0, 8, len(shape))) + np.array(shape, dtype=">u4").tobytes()
        (place / name).write_bytes(head + bytes(int(np.prod(shape))))
    return place


def test_list_is_the_default(call, here):
    said = call("data", "--home", here).out
    assert said == call("data", "list", "--home", here).out == call("data", "--home", here, "list").out
    state = {line.split()[0]: line for line in said.splitlines() if line}
    for name, source in SOURCES.items():
        assert source.about in state[name]
        assert ("not here" in state[name]) == bool(source.forms)
    assert str(here) in said


def test_import_list_show(call, fashion, here):
    home = here / "home"
    made = home / "fashion_mnist.npz"
    assert str(made) in call("data", "import", "fashion_mnist", fashion, "--home", home).out
    sources = json.loads(call("data", "list", "--home", home, "--json").out)["sources"]
    assert {one["name"]: one["state"] for one in sources}["fashion_mnist"] == "here, 0 MB"
    said = call("data", "--home", home, "show", "fashion_mnist").out
    assert "6 training and 2 test" in said
    assert "28 x 28 pixels, 1 channel\n" in said
    assert [line.split() for line in said.splitlines() if "T-shirt" in line] == [["T-shirt/top", "6", "2"]]
    assert str(made) in call("data", "fetch", "fashion_mnist", "--home", home).out  # already there


def test_show_json_and_sheet(call, here):
    said = call("data", "show", "shapes:classes=3,train=4,test=2", "--json", "--sheet", "s.png")
    facts, made = json.loads(said.out), load("shapes:classes=3,train=4,test=2")
    assert facts["shape"] == [1, 16, 16]
    assert facts["classes"][1] == {"name": "disc", "train": 4, "test": 2}
    assert (facts["mean"], facts["std"]) == (list(made.mean), list(made.std))
    assert facts["fingerprint"] == made.fingerprint()
    assert (facts["train"], facts["test"]) == (12, 6)
    assert "s.png" in said.err
    with Image.open("s.png") as picture:
        assert picture.format == "PNG"


def test_names_that_look_like_markup_are_shown_as_they_are(call, here):
    made = load("shapes:classes=1,train=2,test=1")
    save(type(made)("x", ("[red]x[/red]",), made.train, made.test, made.mean, made.std), here / "x.npz")
    assert "[red]x[/red]" in call("data", "show", "x.npz").out


def test_importing_the_commands_costs_only_click():
    code = "import sys, iblurry.cli.data; print([m for m in ('numpy', 'torch', 'rich', 'PIL') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def mine(here):
    (here / "mine.py").write_text(MINE)
    return here


def test_a_source_of_ones_own_is_listed_shown_and_split(apart, call, mine):
    listed, shown, split = apart(
        "data list --import mine.py --json",
        "data show bars:classes=5 --import mine.py --json",
        "split --dataset bars:classes=6 --tasks 3 --import mine.py --json",
    )
    about = {"name": "bars", "about": "Bars of light, one class for each place", "state": "yours, of mine"}
    assert about in json.loads(listed.out)["sources"]
    assert (json.loads(shown.out)["name"], len(json.loads(shown.out)["classes"])) == ("bars", 5)
    assert len(json.loads(split.out)["classes"]) == 6
    unknown = call("data", "show", "bars")
    assert (unknown.code, "'bars'" in unknown.err) == (2, True)


def test_a_source_whose_name_is_taken(refused, mine):
    (mine / "mine.py").write_text(MINE.replace("def bars", "def digits"))
    assert "'digits'" in refused("data", "--import", "mine.py")
