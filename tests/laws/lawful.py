"""Every recipe, each as released too, and variants no recipe names; a new method is picked up here by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from iblurry.augment.pipeline import Augment
from iblurry.learner.learner import Learner
from iblurry.methods import METHODS, Hyperparameters, clib, er, method
from iblurry.methods.method import Method, Pace
from iblurry.parts import Clip, Constant, Importance
from tests.laws import user_module  # noqa: F401  registers bias_free, which has batch norm
from tests.laws.user_transforms import Brightness, Negative

HYPERPARAMETERS = Hyperparameters(batch=8)
VARIANTS = {
    "clib-running": clib(HYPERPARAMETERS, admission=Importance(decrease="running")),
    "clib-three-updates": clib(Hyperparameters(batch=8, updates_per_sample=3)),
    "clib-seldom": clib(Hyperparameters(batch=8, updates_per_sample="1/2", measure_every=2)),
    "clib-some-rows": clib(HYPERPARAMETERS, pace=dataclasses.replace(clib(HYPERPARAMETERS).pace, measure_rows=16)),
    "er-clipped": er(HYPERPARAMETERS, gradient=(Clip(norm=0.5),), schedule=Constant(initial_lr=1e-3)),
    "er-store-before": er(HYPERPARAMETERS, pace=Pace(stream_batch=4, store_when="before", updates_per_sample="1/4")),
}
OWN_TRANSFORMS = (Negative(), Augment(pad=1), Brightness())
OPTIONS = {  # methods as they come, but of learners with something of a user's own
    "er-transforms": {"augment": OWN_TRANSFORMS},
    "mir-transforms": {"augment": OWN_TRANSFORMS},
    "agem-transforms": {"augment": OWN_TRANSFORMS},
    "gdumb-transforms": {"augment": OWN_TRANSFORMS},
    **{name: {"network": "bias_free"} for name in ("agem", "bic", "gss", "rm")},  # half the time of a convnet
}
RELEASED = ("er-released", "clib-released", "clib-stream-released", "bic-released", "rm-released")
LAWFUL: dict[str, Method] = {
    **{name: method(name, HYPERPARAMETERS) for name in METHODS},
    **{name: method(name, HYPERPARAMETERS) for name in RELEASED},
    **VARIANTS,
    **{name: dataclasses.replace(method(name.split("-")[0], HYPERPARAMETERS), name=name) for name in OPTIONS},
}
BUDGET, SAMPLES = 24, 60


def new_learner(chosen: Method, seed: int = 1, **changes: Any) -> Learner:
    options = {"network": "convnet", "memory": BUDGET, "classes": 6, "augment": Augment(pad=1)}
    options |= OPTIONS.get(chosen.name, {}) | changes
    if chosen.admission.keeps_all:
        options["memory"] = max(options["memory"], 8 * SAMPLES)
    return Learner(chosen, image=(1, 8, 8), seed=seed, **options)


def leaves(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor and number of a state, with its path."""
    if isinstance(state, dict):
        for name, value in state.items():
            yield from leaves(value, f"{path}/{name}")
    elif isinstance(state, list | tuple):
        yield path, len(state)
        for i, value in enumerate(state):
            yield from leaves(value, f"{path}/{i}")
    else:
        yield path, state


def assert_same_state(one: Any, other: Any) -> None:
    """Bit for bit, with the path of the first difference."""
    left, right = dict(leaves(one)), dict(leaves(other))
    assert left.keys() == right.keys()
    for path, value in left.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == right[path].dtype, path
            assert value.numpy().tobytes() == right[path].numpy().tobytes(), path
        else:
            assert type(value) is type(right[path]), path
            assert value == right[path], path
