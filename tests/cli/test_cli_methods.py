"""`iblurry methods`: every method, readable for people and complete for programs."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from iblurry.cli.methods import _in_words
from iblurry.components.edit import edit
from iblurry.compute import Passes
from iblurry.experiment.experiment import Experiment
from iblurry.learner.cost import MethodCost, stores
from iblurry.learner.cost import cost as price
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


@pytest.mark.parametrize("columns", [120, 80, 60])
def test_the_list_fits_and_is_complete(call, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    said = call("methods")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert max(map(len, lines)) <= columns
    assert all(line == line.rstrip() for line in lines)
    listed = entries(said.out)
    assert list(listed) == list(METHODS)
    for name, recipe in METHODS.items():
        made = recipe()
        cost = listed[name].pop("cost")
        kept = {"joint": "every sample of the stream"} | dict.fromkeys(
            ("ncm", "slda", "ranpac", "randumb"), "no sample"
        )
        assert listed[name] == {
            "idea": recipe.idea,
            "stores": "; ".join([kept.get(name, "samples"), *stores(made)]),
            "parts": ", ".join(type(part).__name__ for _, part in made.parts()),
            **({"refit": ", ".join(type(part).__name__ for _, part in made.refit.parts())} if made.refit else {}),
            "paper": recipe.paper,
            "tasks": "task-free" if made.task_free else "needs task boundaries",
        }
        numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*", cost)]
        total = dataclasses.asdict(price(made, 50_000 if name == "joint" else 500))
        assert numbers == [count for passes in total.values() for count in passes.values() if count]
    assert "CIFAR-10, with a memory of 500." in " ".join(said.out.split())


def test_costs_in_words(call):
    listed = entries(call("methods").out)
    assert listed["clib"]["cost"] == "516 forward, 16 backward a sample"
    assert listed["bic"]["cost"] == "32 forward, 16 backward a sample; 40 forward a query; 40 forward a task"
    assert listed["bic"]["tasks"] == "needs task boundaries"


@pytest.mark.parametrize(
    "passes, words",
    [
        ({}, "none"),
        ({"sample": Passes(16.5, 0)}, "16.5 forward a sample"),
        ({"query": Passes(128000, 128000)}, "128,000 forward, 128,000 backward a query"),
        ({"sample": Passes(2, 1), "task": Passes(0, 1e6)}, "2 forward, 1 backward a sample; 1,000,000 backward a task"),
    ],
)
def test_any_cost_in_words(passes, words):
    assert _in_words(MethodCost(**{"sample": Passes(), "query": Passes(), "task": Passes()} | passes)) == words


def test_a_named_one_shows_every_field_as_set_takes_it(call):
    said = call("methods", "bic", "clib-released")
    assert max(map(len, said.out.splitlines())) <= 80
    listed = entries(said.out)
    assert list(listed) == ["bic", "clib-released"]
    for name, facts in listed.items():
        base = Experiment.of(name, "cifar10")
        shown = base.method.to_json()
        for place, part in base.method.parts():
            kind, *changes = facts[place].split()
            assert kind == type(part).__name__
            assert len(changes) == len(part.to_json()[kind])
            for change in changes:
                assert edit(base, f"{place}.{change}") == base
        assert facts["optimizer"] == "Adam beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0.0"
        for group in ("pace", "head"):
            assert len(facts[group].split()) == len(shown[group])
            for change in facts[group].split():
                assert edit(base, f"{group}.{change}") == base
    assert "rule=released" in listed["clib-released"]["admission"]


def test_a_refit_shows_its_fields_too(call):
    listed = entries(call("methods", "rm").out)["rm"]
    base = Experiment.of("rm", "cifar10")
    for place in ("refit.rehearsal", "refit.gradient.0", "refit.schedule", "refit.optimizer"):
        kind, *changes = listed[place].split()
        assert kind in ("Shuffled", "Clip", "Cosine", "SGD")
        assert changes
        for change in changes:
            assert edit(base, f"{place}.{change}") == base


def test_a_name_nobody_has(refused):
    assert "no method called 'clbi'. Did you mean 'clib'?" in refused("methods", "clbi")


def test_json_is_complete(call):
    said = call("methods", "--json")
    assert said.code == 0
    everything = json.loads(said.out)
    assert list(everything) == ["methods", "parts", "transforms", "experiment"]
    assert everything["methods"] == {
        name: {
            "idea": recipe.idea,
            "paper": recipe.paper,
            "task_free": recipe().task_free,
            "stores": stores(recipe()),
            "cost": dataclasses.asdict(price(recipe(), 50_000 if name == "joint" else 500)),
            "fields": recipe().to_json(),
        }
        for name, recipe in METHODS.items()
    }
    assert everything["methods"]["clib"]["cost"]["sample"] == {"forward": 516, "backward": 16}
    assert set(everything["parts"]) == set(KINDS)
    for slot, kind in KINDS.items():
        known = everything["parts"][slot]
        assert known
        for name, fields in known.items():
            assert kind.named(name).__name__ == name
            (expected,) = json.loads(json.dumps(kind.named(name)().to_json())).values()
            assert fields == expected
        assert set(known) == set(kind.known())
    assert everything["transforms"]["Augment"] == {"pad": 4, "flip": True, "policy": None, "cutmix": 0.5}
    assert {"method", *everything["experiment"]} == set(Experiment.of("er").to_json())
    assert list(json.loads(call("methods", "er", "--json").out)["methods"]) == ["er"]


def test_every_field_it_lists_can_be_set(call):
    """What --set says: `iblurry methods --json` lists the fields."""
    everything = json.loads(call("methods", "--json").out)
    for slot, parts in everything["parts"].items():
        for name, fields in parts.items():
            base = Experiment.of({"Refit": "gdumb", "Discard": "ncm"}.get(name, "er"))
            with_part = edit(base, f"{slot}={name}")
            place = f"{slot}.0" if isinstance(getattr(base.method, slot), tuple) else slot
            for field, value in fields.items():
                if value is not None:
                    text = str(value).lower() if isinstance(value, bool) else str(value).strip("[]")
                    assert edit(with_part, f"{place}.{field}={text}") == with_part
    base = Experiment.of("er")
    for name, value in everything["experiment"].items():
        if isinstance(value, int | float | str):
            assert edit(base, f"{name}={value}") == base
