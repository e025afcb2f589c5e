"""Changes by path: what each kind of path reaches, and what is said where it leads nowhere."""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction

import pytest

from iblurry.components.edit import edit
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.methods import clib, er
from iblurry.parts import Balanced, Clip, Constant, CrossEntropy, Importance, Nothing, Reservoir, Uniform
from iblurry.streams.stream import IBlurry

CLIB = Experiment.of("clib", "cifar10")


def reach(experiment, path):
    """The value at a path, by plain attributes and positions."""
    owners = (experiment, experiment.method, experiment.stream)
    value = next(owner for owner in owners if path.split(".")[0] in {f.name for f in dataclasses.fields(owner)})
    for name in path.replace("augment.0", "augment").split("."):
        value = value[int(name)] if isinstance(value, tuple) else getattr(value, name)
    return value


@pytest.mark.parametrize(
    "change, value",
    [
        ("memory=200", 200),
        ("seed=0", 0),
        ("dataset=digits", "digits"),
        ("mode=uneven", "uneven"),
        ("disjoint=12.5", 12.5),
        ("blur=30", 30.0),
        ("samples=500", 500),
        ("stream=IBlurry:tasks=3,blur=30", IBlurry(tasks=3, blur=30)),
        ("stream.tasks=4", 4),
        ("augment.pad=2", 2),
        ("augment.flip=false", False),
        ("augment.flip=True", True),
        ("augment.cutmix=1", 1.0),
        ("augment.0.cutmix=1", 1.0),
        ("augment=none", ()),
        ("augment=Augment", CLIB.augment),  # what is there keeps its fields
        ("name=mine", "mine"),
        ("method.name=mine", "mine"),
        ("pace.updates_per_sample=1/3", Fraction(1, 3)),
        ("pace.updates_per_sample=0.1", Fraction(1, 10)),
        ("pace.updates_per_sample=2", Fraction(2)),
        ("pace.store_when=after", "after"),
        ("head.redraw=bias", "bias"),
        ("optimizer.weight_decay=1e-4", 1e-4),
        ("optimizer.eps=1", 1.0),
        ("admission=Balanced", Balanced()),
        ("admission.step=0.2", 0.2),
        ("method.admission.rule=released", "released"),
        ("rehearsal.count=4", 4),
        ("schedule=Constant", Constant()),
        ("schedule.trial=3", 3),
        ("terms=CrossEntropy", (CrossEntropy(),)),
        ("terms=CrossEntropy, CrossEntropy", (CrossEntropy(), CrossEntropy())),
        ("terms.0=CrossEntropy", CrossEntropy()),
        ("gradient=Clip", (Clip(),)),
        ("gradient=none", ()),
        ("gradient=", ()),
    ],
)
def test_what_a_path_reaches(change, value):
    path = change.partition("=")[0]
    changed = edit(CLIB, change)
    assert reach(changed, path) == value
    assert type(reach(changed, path)) is type(value)
    before = CLIB.to_json()
    assert edit(CLIB, change).digest == changed.digest
    assert CLIB.to_json() == before  # the old one is as it was
    assert (changed == CLIB) == (reach(CLIB, path) == value)


def test_changes_on_changes():
    one = edit(edit(edit(CLIB, "gradient=Clip,Clip"), "gradient.1.norm=0.5"), "gradient.0=Clip")
    assert one.method.gradient == (Clip(), Clip(norm=0.5))
    one = edit(edit(CLIB, "schedule=Exponential"), "schedule.gamma=0.5")
    assert one.method.schedule.gamma == 0.5
    assert edit(edit(CLIB, "samples=5"), "samples=none").samples is None
    assert edit(edit(CLIB, "samples=9"), "samples=None").samples is None
    assert edit(edit(CLIB, "admission=Reservoir"), "admission=Importance").method.admission == Importance()
    one = edit(Experiment.of("er"), "rehearsal=Nothing")
    assert (one.method.rehearsal, one.method.admission) == (Nothing(), Reservoir())
    assert edit(one, "rehearsal=Uniform").method.rehearsal == Uniform()


def test_one_that_does_not_fit_yet_waits_for_another_slot():
    er = Experiment.of("er")
    one = edit(er, "rehearsal=Nothing", "admission=Discard")
    assert edit(er, "admission=Discard", "rehearsal=Nothing", "memory=300") == edit(one, "memory=300")
    with pytest.raises(InputError, match="Discard keeps no sample"):
        edit(er, "admission=Discard", "memory=300")
    with pytest.raises(UnknownNameError):
        edit(er, "admission=Discard", "rehearsal=Nothing", "admission.stp=3")
    one = edit(CLIB, "admission=Balanced", "schedule=Exponential", "schedule.gamma=0.5", "schedule=Exponential:gamma=1")
    assert one.method.schedule.gamma == 1  # the last of a slot holds


@pytest.mark.parametrize(
    "change, word",
    [
        ("memory", "memory"),
        ("=5", "=5"),
        ("memory=ten", "ten"),
        ("memory=1.5", "1.5"),
        ("memory=", "memory="),
        ("memory=none", "none"),
        ("samples=all", "all"),
        ("disjoint=half", "half"),
        ("schedule.initial_lr=nan", "nan"),
        ("schedule.initial_lr=inf", "inf"),
        ("augment.flip=1", "true or false"),
        ("pace.updates_per_sample=1/0", "1/0"),
        ("memory.size=3", "memory=VALUE"),
        ("admission.step.x=3", "step=VALUE"),
        ("head=keep", "head.redraw"),
        ("memory=0", "memory=0"),  # the experiment's own checks
        ("admission.step=2", "step=2"),
        ("terms=", "CrossEntropy"),
    ],
)
def test_what_does_not_fit(change, word):
    with pytest.raises(InputError, match=re.escape(word)):
        edit(CLIB, change)


@pytest.mark.parametrize(
    "change, name, meant",
    [
        ("memroy=5", "memroy", "memory"),
        ("admision=Balanced", "admision", "admission"),
        ("admission.stepp=1", "stepp", "step"),
        ("admission.counts=1", "counts", None),  # state is nothing to set
        ("augment.fip=true", "fip", "flip"),
        ("admission=Balance", "Balance", "Balanced"),
        ("admission=", "", None),
        ("admission=Balanced,Reservoir", "Balanced,Reservoir", None),
        ("pace.store_when=befor", "befor", "before"),
        ("augment.1=Augment", "1", None),
        ("terms.1.x=1", "1", None),
        ("terms.x=1", "x", None),
        ("terms.²=1", "²", None),
        ("gradient.0=Clip", "0", None),
        ("admission..=1", "", None),
        ("mode=strikt", "strikt", "strict"),
    ],
)
def test_names_that_are_not_known(change, name, meant):
    with pytest.raises(UnknownNameError) as caught:
        edit(CLIB, change)
    assert repr(name) in str(caught.value)
    assert meant is None or repr(meant) in str(caught.value)


@pytest.mark.parametrize(
    "recipe, slots, changes",
    [
        (clib, {"admission": "Balanced"}, ["admission=Balanced"]),
        (er, {"admission": "Discard", "rehearsal": "Nothing"}, ["admission=Discard", "rehearsal=Nothing"]),
        (er, {"schedule": "Exponential:gamma=0.99"}, ["schedule=Exponential:gamma=0.99"]),
        (er, {"terms": "CrossEntropy,Distil", "gradient": "Clip"}, ["terms=CrossEntropy,Distil", "gradient=Clip"]),
        (er, {"optimizer": "SGD:momentum=0.5"}, ["optimizer=SGD:momentum=0.5"]),
        (er, {"name": "mine", "admission": Balanced()}, ["name=mine", "admission=Balanced"]),
    ],
)
def test_recipes_take_parts_by_name_as_the_command_line_does(recipe, slots, changes):
    assert recipe(**slots) == edit(Experiment.of(recipe(), "digits"), *changes).method


def test_a_part_that_a_recipe_does_not_know():
    with pytest.raises(UnknownNameError, match=r"admission called 'Balance'\. Did you mean 'Balanced'"):
        clib(admission="Balance")
