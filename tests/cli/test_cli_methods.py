"""`iblurry methods`: every method, readable for people and complete for programs."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from iblurry.components.edit import edit
from iblurry.experiment.experiment import Experiment
from iblurry.learner.cost import cost as price, stores
from iblurry.methods import METHODS
from iblurry.methods.method import KINDS

PLACES = [*KINDS, "terms.0", "terms.1", "gradient.0", "optimizer"]
LABELS = ["cost", "stores", "parts", "paper", "pace", "head", "refit", *PLACES, *(f"refit.{place}" for place in PLACES)]


def entries(out):
    """Method by method: the line of its name, its idea, and its labelled lines, wrapping undone."""
    found = {}
    for block in out.split("\n\n")[:-1]:
        title, *lines = block.splitlines()
        assert all(line.startswith("  ") for line in lines)
        facts, last = {"idea": []}, "idea"
        for line in lines:
            label = re.match(r"  (\S+)  +", line)
            if label and label[1] in LABELS:
                last, line = label[1], line[label.end() :]
            facts.setdefault(last, []).append(line.strip())
        name, _, tasks = title.partition(" - ")
        found[name] = {label: " ".join(words) for label, words in facts.items()} | {"tasks": tasks}
    return found


def priced(name):
    return dataclasses.asdict(price(METHODS[name](), 50_000 if name == "joint" else 500))


@pytest.mark.parametrize("columns", [120, 60])
def test_the_list_fits_and_is_complete(call, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    said = call("methods")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert max(map(len, lines)) <= columns
    assert all(line == line.rstrip() for line in lines)
    listed = entries(said.out)
    assert list(listed) == list(METHODS)
    kept = dict.fromkeys(("ncm", "slda", "ranpac", "randumb"), "no sample") | {"joint": "every sample of the stream"}
    for name, recipe in METHODS.items():
        made, cost = recipe(), listed[name].pop("cost")
        assert listed[name] == {
            "idea": recipe.idea,
            "stores": "; ".join([kept.get(name, "samples"), *stores(made)]),
            "parts": ", ".join(type(part).__name__ for _, part in made.parts()),
            **({"refit": ", ".join(type(part).__name__ for _, part in made.refit.parts())} if made.refit else {}),
            "paper": recipe.paper,
            "tasks": "task-free" if made.task_free else "needs task boundaries",
        }
        numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*", cost)]
        assert numbers == [count for passes in priced(name).values() for count in passes.values() if count]
        if name == "bic":
            assert cost == "32 forward, 16 backward a sample; 40 forward a query; 40 forward a task"


def test_a_named_one_shows_every_field_as_set_takes_it(call):
    said = call("methods", "bic", "clib-released", "rm")
    assert max(map(len, said.out.splitlines())) <= 80
    listed = entries(said.out)
    assert list(listed) == ["bic", "clib-released", "rm"]
    for name, facts in listed.items():
        base = Experiment.of(name, "cifar10")
        shown, refit = base.method.to_json(), base.method.refit
        parts = dict(base.method.parts()) | {f"refit.{place}": part for place, part in (refit.parts() if refit else ())}
        for place, part in parts.items():
            kind, *changes = facts[place].split()
            assert kind == type(part).__name__
            assert len(changes) == len(part.to_json()[kind])
            for change in changes:
                assert edit(base, f"{place}.{change}") == base
        for group in ("pace", "head"):
            assert len(facts[group].split()) == len(shown[group])
            for change in facts[group].split():
                assert edit(base, f"{group}.{change}") == base
    assert listed["bic"]["optimizer"] == "Adam beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0.0"
    assert listed["rm"]["refit.optimizer"].startswith("SGD ")
    assert "rule=released" in listed["clib-released"]["admission"]


def test_json_is_complete_and_every_field_can_be_set(call):
    """What --set says: `iblurry methods --json` lists the fields."""
    everything = json.loads(call("methods", "--json").out)
    assert list(everything) == ["methods", "parts", "transforms", "experiment"]
    assert everything["methods"] == {
        name: {
            "idea": recipe.idea,
            "paper": recipe.paper,
            "task_free": recipe().task_free,
            "stores": stores(recipe()),
            "cost": priced(name),
            "fields": recipe().to_json(),
        }
        for name, recipe in METHODS.items()
    }
    assert set(everything["parts"]) == set(KINDS)
    for slot, kind in KINDS.items():
        assert set(everything["parts"][slot]) == set(kind.known())
        for name, fields in everything["parts"][slot].items():
            (expected,) = json.loads(json.dumps(kind.named(name)().to_json())).values()
            assert fields == expected
            base = Experiment.of({"Refit": "gdumb", "Discard": "ncm"}.get(name, "er"))
            with_part = edit(base, f"{slot}={name}")
            place = f"{slot}.0" if isinstance(getattr(base.method, slot), tuple) else slot
            for field, value in fields.items():
                if value is not None:
                    text = str(value).lower() if isinstance(value, bool) else str(value).strip("[]")
                    assert edit(with_part, f"{place}.{field}={text}") == with_part
    assert everything["transforms"]["Augment"] == {"pad": 4, "flip": True, "policy": None, "cutmix": 0.5}
    base = Experiment.of("er")
    assert {"method", *everything["experiment"]} == set(base.to_json())
    for name, value in everything["experiment"].items():
        if isinstance(value, int | float | str):
            assert edit(base, f"{name}={value}") == base
    assert list(json.loads(call("methods", "er", "--json").out)["methods"]) == ["er"]
