"""iblurry data, from the outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from iblurry.cli.data import data
from iblurry.data.load import SOURCES, load
from iblurry.data.sources.arrays import save
from iblurry.data.sources.mnist import FILES
from iblurry.errors import DataError, UnknownNameError


def call(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(data, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def fashion(tmp_path: Path) -> Path:
    place = tmp_path / "files"
    place.mkdir()
    for name, shape in zip(FILES, [(6, 28, 28), (6,), (2, 28, 28), (2,)], strict=True):
        head = bytes((0, 0, 8, len(shape))) + np.array(shape, dtype=">u4").tobytes()
        (place / name).write_bytes(head + bytes(int(np.prod(shape))))
    return place


def test_list_is_the_default(tmp_path: Path) -> None:
    said = call("--home", tmp_path).output
    assert said == call("list", "--home", tmp_path).output == call("--home", tmp_path, "list").output
    state = {line.split()[0]: line for line in said.splitlines() if line}
    for name, source in SOURCES.items():
        assert source.about in state[name]
        assert ("not here" in state[name]) == bool(source.forms)
    assert str(tmp_path) in said


def test_import_list_show(fashion: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    said = call("import", "fashion_mnist", fashion, "--home", home).output
    assert said == f"fashion_mnist is in {home / 'fashion_mnist.npz'}\n"
    assert "fashion_mnist  70,000 clothes in 10 classes, grey 28x28        here, 0 MB" in call("--home", home).output
    said = call("--home", home, "show", "fashion_mnist").output
    assert "6 training and 2 test" in said
    assert "28 x 28 pixels, 1 channel\n" in said
    assert [line.split() for line in said.splitlines() if "T-shirt" in line] == [["T-shirt/top", "6", "2"]]
    assert call("fetch", "fashion_mnist", "--home", home).output.endswith("fashion_mnist.npz\n")  # already there


def test_show_json_and_sheet(tmp_path: Path) -> None:
    sheet = tmp_path / "s.png"
    result = call("show", "shapes:classes=3,train=4,test=2", "--json", "--sheet", sheet)
    facts = json.loads(result.stdout)
    made = load("shapes:classes=3,train=4,test=2")
    assert facts["shape"] == [1, 16, 16]
    assert facts["classes"][1] == {"name": "disc", "train": 4, "test": 2}
    assert facts["mean"] == list(made.mean)
    assert facts["std"] == list(made.std)
    assert facts["fingerprint"] == made.fingerprint()
    assert (facts["train"], facts["test"]) == (12, 6)
    assert str(sheet) in result.stderr
    with Image.open(sheet) as picture:
        assert picture.format == "PNG"


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    made = load("shapes:classes=1,train=2,test=1")
    save(type(made)("x", ("[red]x[/red]",), made.train, made.test, made.mean, made.std), tmp_path / "x.npz")
    assert "[red]x[/red]" in call("show", tmp_path / "x.npz").output


def test_errors_are_left_to_the_main_program(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'digits'"):
        call("show", "digts")
    with pytest.raises(DataError, match="There is no file or folder"):
        call("import", "cifar10", tmp_path / "nowhere", "--home", tmp_path)
    with pytest.raises(DataError, match="iblurry data fetch cifar100"):
        call("show", "cifar100", "--home", tmp_path)


def test_importing_the_commands_costs_only_click() -> None:
    code = "import sys, iblurry.cli.data; print([m for m in ('numpy', 'torch', 'rich', 'PIL') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
