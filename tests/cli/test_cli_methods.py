"""`iblurry methods`: every method, readable for people and complete for programs."""

from __future__ import annotations

import json

import pytest

from iblurry.experiment.edit import edit
from iblurry.experiment.experiment import Experiment
from iblurry.method import KINDS
from iblurry.methods import METHODS
from iblurry.parts.part import known_parts, part_class


@pytest.mark.parametrize("columns", [80, 60])
def test_the_list_fits(call, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    said = call("methods")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert max(map(len, lines[:-1])) <= columns
    assert all(line == line.rstrip() for line in lines)
    for name, recipe in METHODS.items():
        start = next(at for at, line in enumerate(lines) if line.split(" ")[0] == name)
        entry = [lines[start].removeprefix(name)]
        entry += [line for line in lines[start + 1 : start + 6] if line.startswith(" ")]
        text = " ".join(" ".join(entry).split())
        parts = ", ".join(type(part).__name__ for _, part in recipe().parts())
        assert text.startswith(f"{recipe.idea} {parts}")


def test_json_is_complete(call):
    said = call("methods", "--json")
    assert said.code == 0
    everything = json.loads(said.out)
    assert list(everything) == ["methods", "parts", "experiment"]
    assert everything["methods"] == {
        name: {"idea": recipe.idea, "paper": recipe.paper, "fields": recipe().to_json()}
        for name, recipe in METHODS.items()
    }
    assert set(everything["parts"]) == set(KINDS)
    for slot, kind in KINDS.items():
        known = everything["parts"][slot]
        assert known
        for name, fields in known.items():
            assert part_class(kind.kind, name).__name__ == name
            assert fields == part_class(kind.kind, name)().to_json()[name]
        assert set(known) == set(known_parts(kind.kind))
    assert {"method", *everything["experiment"]} == set(Experiment.of("er").to_json())


def test_every_field_it_lists_can_be_set(call):
    """What --set says: `iblurry methods --json` lists the fields."""
    everything = json.loads(call("methods", "--json").out)
    base = Experiment.of("er")
    for slot, parts in everything["parts"].items():
        for name, fields in parts.items():
            with_part = edit(base, f"{slot}={name}")
            place = f"{slot}.0" if isinstance(getattr(base.method, slot), tuple) else slot
            for field, value in fields.items():
                if value is not None:
                    text = str(value).lower() if isinstance(value, bool) else str(value)
                    assert edit(with_part, f"{place}.{field}={text}") == with_part
    for name, value in everything["experiment"].items():
        if isinstance(value, int | float | str):
            assert edit(base, f"{name}={value}") == base


def test_ones_own_are_listed_after_import(apart, own):
    listed, everything = apart("methods --import mine.py", "methods --import mine --json")
    assert "\nclib-oldest" in listed.out
    assert "CLIB that gives up the oldest." in listed.out
    about = json.loads(everything.out)
    assert about["methods"]["clib-oldest"]["paper"] == "mine"
    assert about["parts"]["admission"]["Oldest"] == {"patience": 3}
