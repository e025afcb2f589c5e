"""A part that starts again is like one just attached, and its tensors are where they were."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from iblurry.methods.method import KINDS
from iblurry.parts import Distil, Elastic
from iblurry.parts.part import Part, declared

OURS = [p for kind in KINDS.values() for p in kind.known().values() if p.__module__.startswith("iblurry.")]


def spoilt(value):
    """Something else of the same kind; tensors in place."""
    if isinstance(value, torch.Tensor):
        value.copy_(torch.ones_like(value) if not value.any() else torch.zeros_like(value))
    elif isinstance(value, dict):
        for one in value.values():
            spoilt(one)
    elif isinstance(value, list):
        return [*value, 7]
    elif isinstance(value, bool):
        return not value
    elif isinstance(value, int | float):
        return value + 1
    return value


def values_of(part, what):
    return {name: getattr(part, name) for name in declared(type(part), what)}


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_state_is_back_at_its_start(kind, make_context):
    context = make_context(12)
    part = kind().attach(context)
    for name, value in values_of(part, "state").items():
        before = copy.deepcopy(value)
        setattr(part, name, spoilt(value))
        assert not same(before, getattr(part, name)), name
    where = places(part)
    part.restart()
    fresh = Part.attach(kind(), context)
    assert same(values_of(part, "state"), values_of(fresh, "state"))
    assert places(part) == where
    for name, value in values_of(fresh, "scratch").items():
        if not callable(value):
            assert same(getattr(part, name), value), name


def places(part):
    found = {}
    for name, value in (values_of(part, "state") | values_of(part, "scratch")).items():
        for key, one in (value if isinstance(value, dict) else {"": value}).items():
            if isinstance(one, torch.Tensor):
                found[name, key] = one.data_ptr()
    return found


def test_a_shadow_starts_again_as_the_network_is_now(make_context):
    context = make_context(12)
    teacher, anchor = Distil().attach(context), Elastic().attach(context)
    with torch.no_grad():
        context.network.head.weight += 1
    context.shadow("teacher").reset()
    teacher.restart()
    anchor.restart()
    assert teacher.teacher is context.shadow("teacher")
    assert same(teacher.teacher.state_dict(), dict(context.network.state_dict()))
    assert not any(one.any() for one in anchor.anchor.values())
