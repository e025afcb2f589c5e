"""Changes by path: what each kind of path reaches, and what is said where it leads nowhere."""

from __future__ import annotations

import dataclasses
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
    "change, sentence",
    [
        ("memory", "'memory' is not a change; write path=value, such as memory=200 or admission=Balanced."),
        ("=5", "'=5' is not a change; write path=value, such as memory=200 or admission=Balanced."),
        ("memory=ten", "memory=ten: 'ten' is not valid; give a whole number."),
        ("memory=1.5", "memory=1.5: '1.5' is not valid; give a whole number."),
        ("memory=", "memory=: '' is not valid; give a whole number."),
        ("memory=none", "memory=none: 'none' is not valid; give a whole number."),
        ("samples=all", "samples=all: 'all' is not valid; give a whole number or none."),
        ("disjoint=half", "disjoint=half: 'half' is not valid; give a number."),
        ("schedule.initial_lr=nan", "schedule.initial_lr=nan: 'nan' is not valid; give a number."),
        ("schedule.initial_lr=inf", "schedule.initial_lr=inf: 'inf' is not valid; give a number."),
        ("augment.flip=1", "augment.flip=1: '1' is not valid; give true or false."),
        (
            "pace.updates_per_sample=1/0",
            "pace.updates_per_sample=1/0: '1/0' is not valid; give a fraction such as 3, 0.25 or 1/16.",
        ),
        ("memory.size=3", "memory.size=3: memory is 500 and has no fields; write memory=VALUE."),
        (
            "admission.step.x=3",
            "admission.step.x=3: step is 0.1 and has no fields; write step=VALUE.",
        ),
        ("augment.1=Augment", "There is no position in augment called '1'. Known: 0."),
        (
            "head=keep",
            "head=keep: head has fields of its own; set one of head.moments, head.redraw, head.train.",
        ),
        ("memory=0", "memory=0 is too small; the minimum is 1."),  # the experiment's own checks
        ("admission.step=2", "Importance(step=2.0): step must lie in (0, 1]."),
        (
            "terms=",
            "terms is empty, so there is no loss to train on; the usual choice is (CrossEntropy(),).",
        ),
    ],
)
def test_what_does_not_fit(change, sentence):
    with pytest.raises(InputError) as caught:
        edit(CLIB, change)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "change, beginning",
    [
        (
            "memroy=5",
            "There is no field of an experiment, its method or its stream called 'memroy'. Did you mean 'memory'?",
        ),
        (
            "admision=Balanced",
            "There is no field of an experiment, its method or its stream called 'admision'. Did you mean 'admission'?",
        ),
        ("admission.stepp=1", "There is no field of Importance called 'stepp'. Did you mean 'step'?"),
        ("admission.counts=1", "There is no field of Importance called 'counts'."),  # state is nothing to set
        ("augment.fip=true", "There is no field of Augment called 'fip'. Did you mean 'flip'?"),
        ("admission=Balance", "There is no admission called 'Balance'. Did you mean 'Balanced'?"),
        ("admission=", "There is no admission called ''."),
        ("admission=Balanced,Reservoir", "There is no admission called 'Balanced,Reservoir'."),
        ("pace.store_when=befor", "There is no choice for pace.store_when called 'befor'. Did you mean 'before'?"),
        ("terms.1.x=1", "There is no position in terms called '1'. Known: 0."),
        ("terms.x=1", "There is no position in terms called 'x'. Known: 0."),
        ("terms.²=1", "There is no position in terms called '²'. Known: 0."),
        ("gradient.0=Clip", "There is no position in gradient called '0'. Known: none."),
        ("admission..=1", "There is no field of Importance called ''."),
        ("mode=strikt", "There is no choice for mode called 'strikt'. Did you mean 'strict'?"),
    ],
)
def test_names_that_are_not_known(change, beginning):
    with pytest.raises(UnknownNameError) as caught:
        edit(CLIB, change)
    assert str(caught.value).startswith(beginning)


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
