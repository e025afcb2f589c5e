"""Hyper-parameters, flat: the paths that --set takes, all of them; and names that every logger allows."""

from __future__ import annotations

import json
import re

import pytest

from iblurry.experiment.edit import edit
from iblurry.experiment.experiment import Experiment
from iblurry.methods import METHODS
from iblurry.studies.loggers.logger import flatten_hyperparameters, safe_name


@pytest.mark.parametrize("name", list(METHODS))
def test_set_makes_the_same_experiment_of_another(name):
    """Every path is one that --set takes, and none is missing."""
    experiment = Experiment.of(name, "cifar10", seed=3, samples=700, memory=77, blur=30)
    flat = flatten_hyperparameters(json.loads(json.dumps(experiment.to_json())))
    other = Experiment.of(name, "digits")
    assert flat.pop("method") == name
    for path, value in flat.items():
        if (path, value) != ("refit", "none"):
            other = edit(other, f"{path}={value}")
    assert other == experiment


def test_every_field_is_there():
    experiment = Experiment.of("clib", "cifar10", memory=77)
    flat = flatten_hyperparameters(experiment.to_json())
    expected = {"memory": 77, "augment.pad": 4, "admission": "Importance", "terms": "CrossEntropy", "gradient": "none"}
    expected |= {
        "schedule.initial_lr": experiment.method.schedule.initial_lr,
        "optimizer": "Adam",
        "pace.stream_batch": 1,
    }
    assert {path: flat[path] for path in expected} == expected
    assert flat.keys() >= {f"admission.{field}" for field in ("step", "rule", "decrease")}


def test_several_parts_in_a_slot_have_places():
    flat = flatten_hyperparameters(Experiment.of("ewc", "cifar10").to_json())
    assert flat["terms"] == "CrossEntropy,Elastic"
    assert [path for path in flat if path.startswith("terms.1.")]
    assert not [path for path in flat if path.startswith("terms.0.")]


def test_lists_of_numbers():
    assert flatten_hyperparameters({"method": {"name": "m", "at": [3, 6]}}) == {"method": "m", "at": "3,6"}


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a/b", "ä", "x" * 200, "it's"])
def test_names_that_are_not_allowed_become_ones_that_are(name):
    assert re.fullmatch("[A-Za-z0-9_-]{1,120}", safe_name(name))
    assert len({safe_name(name), safe_name(name + "."), safe_name(name + "/")}) == 3
    assert safe_name("clib-digits-1-0123456789ab") == "clib-digits-1-0123456789ab"
