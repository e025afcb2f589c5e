"""Any value for any argument: it is understood, or refused by an error of the package's own."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from iblurry.components.code_hash import is_own
from iblurry.components.component import Component
from iblurry.errors import IblurryError
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.environment import Hardware
from iblurry.experiment.experiment import Experiment
from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run, run_all
from iblurry.learner.exported import load_exported
from iblurry.learner.learner import Learner
from iblurry.methods import Hyperparameters, er
from iblurry.methods.method import Head, Method, Pace

LEARNER = {"method": er(), "image": (1, 8, 8), "classes": 3, "memory": 20, "network": "mlp", "augment": None}
LEARNER |= {"mean": None, "std": None, "seed": 1, "boundaries": True, "engine": None, "initialise": None}
LEARNER |= {"device": None, "precision": None, "freeze": "none"}
REQUIRED = {"Published": {"folder": "nowhere"}, "TorchTransform": {"transform": torch.nn.Identity()}}
BLACK = np.zeros((1, 8, 8), np.uint8)
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 40), st.floats(), st.text(max_size=5), st.binary(max_size=3)
)
OBJECTS = [np.zeros(2), np.array(None), np.int64(3), np.float32(0.5), torch.zeros(2), torch.tensor(1), object(), Method]
VALUES = st.one_of(
    PLAIN,
    st.lists(PLAIN, max_size=3),
    st.lists(PLAIN, max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=2), PLAIN, max_size=2),
    st.sampled_from(OBJECTS),
)


def make_learner(**changes):
    options = LEARNER | changes
    return Learner(options.pop("method"), **options)


def targets():
    """Every argument that a value may be given to: its name, and the call."""
    for name in LEARNER:
        yield f"Learner.{name}", lambda value, name=name: make_learner(**{name: value})
    observed = make_learner()
    observed.observe(BLACK, 1)
    yield "observe.image", lambda value: observed.observe(value, 1)
    yield "observe.label", lambda value: make_learner().observe(BLACK, value)
    yield "predict", observed.predict
    yield "Learner.load", Learner.load
    yield "load_exported", load_exported
    yield "probabilities", observed.probabilities
    components = [one for known in Component._known.values() for one in known.values() if is_own(one)]
    for one in (Method, Pace, Head, Hyperparameters, LaunchConfig, Hardware, CheckpointPolicy, *components):
        for field in dataclasses.fields(one):
            if field.init:
                given = REQUIRED.get(one.__name__, {})
                yield (
                    f"{one.__name__}.{field.name}",
                    lambda value, one=one, name=field.name, given=given: one(**given | {name: value}),
                )
    for field in dataclasses.fields(Experiment):
        if field.name not in ("method", "dataset"):
            yield f"Experiment.{field.name}", lambda value, name=field.name: Experiment.of("er", **{name: value}).name
    yield "Experiment.method", lambda value: Experiment.of(value).name
    yield "Experiment.dataset", lambda value: Experiment.of("er", value).name
    yield "run", lambda value: run(value, 3)
    yield "run_all", lambda value: run_all(value, "config")


TARGETS = dict(targets())


@pytest.mark.slow
@settings(max_examples=2000, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(TARGETS)), VALUES)
def test_only_errors_of_our_own(name, value):
    if name == "Learner.network" and callable(value):
        return  # a factory of the user's, whose errors are the user's
    with suppress(IblurryError):
        TARGETS[name](value)
