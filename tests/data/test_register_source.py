"""Sources of one's own: registered by a decorator, named in a spec, refused where a name is taken."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import iblurry
from iblurry.data.dataset import Dataset
from iblurry.data.load import MODULES, SOURCES, find_source, load, parse_spec, register_source
from iblurry.errors import InputError, UnknownNameError

FOUR = np.zeros((4, 2, 2), dtype=np.uint8)


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setenv(MODULES, "")
    known = dict(SOURCES)
    yield
    SOURCES.clear()
    SOURCES.update(known)


def made(name="made", **facts):
    return Dataset.from_arrays(FOUR, [0, 1, 0, 1], FOUR, [0, 1, 0, 1], name=f"{name} {facts}" if facts else name)


def plain():
    return made()


def nothing():
    return 3


def test_a_function_is_a_source():
    @iblurry.register_source
    def greys(shades: int = 3, *, deep=False, noise: float | None = None, kind: str = "plain"):
        """So many greys.

        And more about them.
        """
        return made(shades=shades, deep=deep, noise=noise, kind=kind)

    assert greys().name == load("greys").name
    assert SOURCES["greys"].about == "So many greys"
    assert parse_spec("greys:shades=4,deep=true,noise=1,kind=odd")[2] == {
        "shades": 4,
        "deep": True,
        "noise": 1.0,
        "kind": "odd",
    }
    assert load("greys:noise=0.5", kind="x").name == str(made(shades=3, deep=False, noise=0.5, kind="x").name)
    assert not SOURCES["greys"].is_own
    for wrong in ("greys:shades=few", "greys:/tmp"):
        with pytest.raises(InputError, match="greys"):
            load(wrong)
    with pytest.raises(InputError, match=r"kind.*7"):
        load("greys", kind=7)
    with pytest.raises(UnknownNameError, match="'shade'"):
        load("greys:shade=3")


def test_a_place_and_what_must_be_given(tmp_path):
    @register_source
    def mine(path: Path, *, count: int):
        return made(path=path, count=count)

    assert load(f"mine:{tmp_path},count=2").name == made(path=tmp_path, count=2).name
    register_source(nothing)
    with pytest.raises(InputError, match="'nothing'"):
        load("nothing")
    with pytest.raises(InputError, match="'count'"):
        load(f"mine:{tmp_path}")
    with pytest.raises(InputError, match="PATH"):
        load("mine:count=2")

    @register_source
    def perhaps(path: Path | None = None):
        return made(path=path)

    assert load("perhaps").name == made(path=None).name
    assert load(f"perhaps:{tmp_path}").name == made(path=tmp_path).name


def test_a_name_that_is_taken_is_refused():
    def digits():
        return made()

    with pytest.raises(InputError, match=r"'digits'.*test_register_source"):
        register_source(digits)
    assert load("digits").shape == (1, 8, 8)
    register_source(plain)
    register_source(plain)  # the same again, as when a module is imported twice
    space = {"__name__": "other"}
    exec(compile("def plain(): ...", "<other>", "exec"), space)
    with pytest.raises(InputError, match=r"'plain'.*test_register_source"):
        register_source(space["plain"])
    assert SOURCES["plain"].reader is plain


def test_a_function_that_is_defined_again_replaces_itself():
    spaces = [{"__name__": "__main__"} for _ in range(2)]
    for cell, space in enumerate(spaces):
        exec(compile(f"def again():\n    return {cell}\n", f"<cell {cell}>", "exec"), space)
        register_source(space["again"])
    assert SOURCES["again"].reader is spaces[1]["again"]
    assert os.environ[MODULES] == ""  # a worker runs the main script itself


@pytest.mark.parametrize("wrong", [None, 3, "digits", Dataset, made()])
def test_what_is_no_function_is_refused(wrong):
    with pytest.raises(InputError, match="function"):
        register_source(wrong)


def test_parameters_that_a_command_line_cannot_give_are_refused():
    def listed(items: list[int]): ...
    def untyped(items): ...
    def several(*items): ...
    def keywords(**items): ...
    def positional(items: int = 3, /): ...

    for reader in (listed, untyped, several, keywords, positional):
        with pytest.raises(InputError, match=f"{reader.__name__}.*items"):
            register_source(reader)
        assert reader.__name__ not in SOURCES


def test_another_process_finds_it_by_its_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "found_later.py").write_text(
        "from iblurry import Dataset, register_source\n"
        "@register_source\n"
        "def later():\n"
        "    return Dataset.from_arrays([[[0]], [[1]]], [0, 1], [[[0]]], [0])\n"
    )
    with pytest.raises(UnknownNameError, match="later"):
        find_source("later")
    monkeypatch.setenv(MODULES, "found_later")
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("later").shape == (1, 1, 1)  # a source's name comes before a folder's
    assert os.environ[MODULES] == "found_later"
