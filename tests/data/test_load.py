"""One line names the data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iblurry.data.load import SOURCES, data_home, import_local, load, parse_spec, stored_path
from iblurry.data.sources.arrays import save
from iblurry.data.sources.mnist import FILES
from iblurry.errors import DataError, InputError, UnknownNameError


@pytest.mark.parametrize(
    "spec, expected",
    [
        ("digits", ("digits", None, {})),
        ("shapes:classes=20,train=500,noise=0", ("shapes", None, {"classes": 20, "train": 500, "noise": 0.0})),
        ("folder:/a/b,size=32", ("folder", "/a/b", {"size": 32})),
        ("folder:/a,b=c/d,size=32,channels=1", ("folder", "/a,b=c/d", {"size": 32, "channels": 1})),
        ("folder:rel", ("folder", "rel", {})),
        ("cifar10:/x/cifar-10-python.tar.gz", ("cifar10", "/x/cifar-10-python.tar.gz", {})),
        ("/x/mine.npz", ("arrays", "/x/mine.npz", {})),
        ("mine.npz", ("arrays", "mine.npz", {})),
        ("/x:y/mine.npz", ("arrays", "/x:y/mine.npz", {})),
    ],
)
def test_parse(spec: str, expected: tuple[str, str | None, dict[str, Any]]) -> None:
    name, path, options = parse_spec(spec)
    assert (name, None if path is None else str(path), options) == expected
    assert [type(value) for value in options.values()] == [type(value) for value in expected[2].values()]


def test_parse_finds_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "odd,size=3"
    odd.mkdir()
    assert parse_spec(str(odd)) == ("folder", odd, {})
    assert parse_spec(f"{tmp_path},size=8") == ("folder", tmp_path, {"size": 8})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert parse_spec("digits")[0] == "digits"  # a source's name comes first
    assert parse_spec("./digits")[:2] == ("folder", Path("digits"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_spec("~/digits")[:2] == ("folder", tmp_path / "digits")


@pytest.mark.parametrize(
    "spec, kind, words",
    [
        ("cifar-10", UnknownNameError, "Did you mean 'cifar10'"),
        ("shape:classes=3", UnknownNameError, "Did you mean 'shapes'"),
        ("shapes:clases=3", UnknownNameError, "Did you mean 'classes'"),
        ("cifar10:size=3", UnknownNameError, "no option of cifar10 called 'size'"),
        ("shapes:classes=many", InputError, "classes of shapes.*'many'"),
        ("shapes:classes=2.5", InputError, "must be a whole number"),
        ("shapes:noise=loud", InputError, "noise of shapes must be a number"),
        ("shapes:classes=3,classes=4", InputError, "'classes' is given twice"),
        ("shapes:20", InputError, "reads no path, but '20' was given"),
        ("digits:/x", InputError, "reads no path"),
        ("/no/such/place", DataError, "There is no file or folder /no/such/place"),
        ("", UnknownNameError, "no data source called ''"),
    ],
)
def test_parse_refuses(spec: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        parse_spec(spec)


def test_other_files_need_a_name(tmp_path: Path) -> None:
    (tmp_path / "c.tar.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"cifar10:.*c\.tar\.gz"):
        parse_spec(str(tmp_path / "c.tar.gz"))


def test_load_with_options() -> None:
    data = load("shapes:classes=3,train=4", test=np.int64(2), noise=0)
    assert (len(data.classes), len(data.train), len(data.test)) == (3, 12, 6)
    with pytest.raises(InputError, match="'train' is given twice"):
        load("shapes:train=4", train=4)
    with pytest.raises(InputError, match=r"classes of shapes.* 2\.5"):
        load("shapes", classes=2.5)
    with pytest.raises(InputError, match="must be a whole number, not inf"):
        load("shapes", classes=float("inf"))
    with pytest.raises(UnknownNameError, match="Did you mean 'size'"):
        load("shapes", sise=3)
    for name in ("folder", "arrays"):
        with pytest.raises(InputError, match=f"needs a path; write {name}:PATH"):
            load(name)


def test_what_is_not_here_says_how_to_get_it(tmp_path: Path) -> None:
    for name, source in SOURCES.items():
        if source.forms:
            with pytest.raises(DataError) as caught:
                load(name, tmp_path)
            said = str(caught.value)
            assert f"run `iblurry data fetch {name}`, or `iblurry data import {name} PATH` with a copy (" in said
            assert source.forms in said


def test_import_then_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for name, shape in zip(FILES, [(6, 28, 28), (6,), (2, 28, 28), (2,)], strict=True):
        head = bytes((0, 0, 8, len(shape))) + np.array(shape, dtype=">u4").tobytes()
        (tmp_path / name).write_bytes(head + rng.integers(0, 10, shape, dtype=np.uint8).tobytes())
    home = tmp_path / "home"
    place = import_local("fashion_mnist", tmp_path, home)
    assert place == stored_path("fashion_mnist", home) == home / "fashion_mnist.npz"
    data = load("fashion_mnist", home)
    assert data.name == "fashion_mnist"
    assert data.fingerprint() == load(f"fashion_mnist:{tmp_path}").fingerprint()
    monkeypatch.setenv("IBLURRY_DATA", str(home))
    assert load("fashion_mnist").fingerprint() == data.fingerprint()


def test_import_refuses(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'cifar10'"):
        import_local("cifar", tmp_path, tmp_path)
    with pytest.raises(InputError, match="'digits': it is built in"):
        import_local("digits", tmp_path, tmp_path)
    with pytest.raises(InputError, match="'folder': use folder:PATH"):
        import_local("folder", tmp_path, tmp_path)
    with pytest.raises(DataError, match="is not a copy of cifar10"):
        import_local("cifar10", tmp_path, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_load_a_file_and_a_folder(tmp_path: Path) -> None:
    data = load("shapes:classes=2,train=2,test=1")
    save(data, tmp_path / "mine.npz")
    assert load(str(tmp_path / "mine.npz")).fingerprint() == data.fingerprint()
    assert load(f"arrays:{tmp_path / 'mine.npz'}").fingerprint() == data.fingerprint()
    with pytest.raises(DataError, match=r"has no folders of classes"):
        load(str(tmp_path))


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("IBLURRY_DATA", raising=False)
    assert data_home() == tmp_path / ".cache" / "iblurry"
    monkeypatch.setenv("IBLURRY_DATA", "~/else")
    assert data_home() == tmp_path / "else"


def test_the_data_room_is_light() -> None:
    code = (
        "import sys, iblurry.data.load as l; l.load('digits'); l.load('shapes:train=1');"
        "print([m for m in ('torch', 'matplotlib', 'PIL', 'rich', 'scipy', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
