"""A part that starts again is like one just attached, and its tensors are where they were."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.methods.method import KINDS
from iblurry.parts import Distil, Elastic
from iblurry.parts.part import declared
from tests.laws.lawful import assert_same_state, leaves

OURS = [p for kind in KINDS.values() for p in kind.known().values() if p.__module__.startswith("iblurry.")]


def values_of(part, *kinds):
    """What the part declared, but for the objects it shares and the functions it calls."""
    values = {name: getattr(part, name) for kind in kinds for name in declared(type(part), kind)}
    plain = torch.Tensor | np.ndarray | int | float | list | dict | tuple
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
        if isinstance(value, plain)
    }


def spoilt(value):
    """Something else of the same kind; tensors in place."""
    if isinstance(value, torch.Tensor):
        return value.fill_(0 if value.any() else 1)
    if isinstance(value, dict):
        return {name: spoilt(one) for name, one in value.items()}
    return [*value, 7] if isinstance(value, list) else type(value)(not value)


def places(part):
    found = leaves(values_of(part, "state", "scratch"))
    drawn = "/drawn/"  # random features: no captured step reads them
    return {path: v.data_ptr() for path, v in found if isinstance(v, torch.Tensor) and not path.startswith(drawn)}


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_state_is_back_at_its_start(kind, make_context):
    context = make_context(12)
    part, fresh = kind().attach(context), kind().attach(context)
    where = places(part)
    for name, value in values_of(part, "state").items():
        setattr(part, name, spoilt(value))
        with pytest.raises(AssertionError):
            assert_same_state(getattr(part, name), getattr(fresh, name))
    part.restart()
    assert_same_state(values_of(part, "state", "scratch"), values_of(fresh, "state", "scratch"))
    assert places(part) == where


def test_a_shadow_starts_again_as_the_network_is_now(make_context):
    context = make_context(12)
    teacher, anchor = Distil().attach(context), Elastic().attach(context)
    with torch.no_grad():
        context.network.head.weight += 1
    context.shadow("teacher").reset()
    teacher.restart()
    anchor.restart()
    assert teacher.teacher is context.shadow("teacher")
    assert_same_state(teacher.teacher.state_dict(), dict(context.network.state_dict()))
    assert not any(one.any() for one in anchor.anchor.values())
