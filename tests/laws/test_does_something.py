"""With each part learning takes another course than without it: a part that silently does nothing fails here."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch

from iblurry.augment.pipeline import Augment
from iblurry.engine.optimizer import SGD, Adam
from iblurry.methods import Hyperparameters, clib, er, gdumb, joint, method, rm
from iblurry.methods.method import Head
from iblurry.parts import (
    Adaptive,
    Balanced,
    BiasCorrected,
    Clip,
    Constant,
    Cosine,
    CrossEntropy,
    Distil,
    Diverse,
    Elastic,
    Exponential,
    Importance,
    Interfered,
    MultiStep,
    Nothing,
    Plain,
    Project,
    Refit,
    Reservoir,
    Shuffled,
    Uniform,
)
from tests.laws.lawful import new_learner

HYPERPARAMETERS = Hyperparameters(batch=8)
QUICK = Adaptive(trial=2, ignore=2, history=3)
CLIB, ER = clib(HYPERPARAMETERS, schedule=QUICK), er(HYPERPARAMETERS)
RM = rm(HYPERPARAMETERS, readout=Refit(at="boundary", epochs=2))
PAIRS = {
    "importance against balanced": (CLIB, clib(HYPERPARAMETERS, schedule=QUICK, admission=Balanced())),
    "importance against reservoir": (CLIB, clib(HYPERPARAMETERS, schedule=QUICK, admission=Reservoir())),
    "importance rule": (CLIB, clib(HYPERPARAMETERS, schedule=QUICK, admission=Importance(rule="released"))),
    "importance decrease": (CLIB, clib(HYPERPARAMETERS, schedule=QUICK, admission=Importance(decrease="running"))),
    "importance step": (CLIB, clib(HYPERPARAMETERS, schedule=QUICK, admission=Importance(step=0.9))),
    "memory-only training": (CLIB, dataclasses.replace(CLIB, pace=ER.pace, rehearsal=ER.rehearsal)),
    "adaptive rate": (CLIB, clib(HYPERPARAMETERS, schedule=Constant())),
    "adaptive rule": (CLIB, clib(HYPERPARAMETERS, schedule=QUICK.released())),
    "adaptive trial": (CLIB, clib(HYPERPARAMETERS, schedule=dataclasses.replace(QUICK, trial=3))),
    "exponential decay": (ER, er(HYPERPARAMETERS, schedule=Constant())),
    "restart on a class": (ER, er(HYPERPARAMETERS, schedule=Exponential(restart_on_class=False, gamma=0.9999))),
    "rehearsal": (ER, er(HYPERPARAMETERS, rehearsal=Nothing())),
    "rows rehearsed": (ER, er(HYPERPARAMETERS, rehearsal=Uniform(count=6))),
    "clip": (er(HYPERPARAMETERS, gradient=(Clip(norm=1e-3),)), ER),
    "elastic": (ER, er(HYPERPARAMETERS, terms=(CrossEntropy(), Elastic(strength=1e3)))),
    "distil": (ER, er(HYPERPARAMETERS, terms=(CrossEntropy(), Distil()))),
    "interfered": (ER, er(HYPERPARAMETERS, rehearsal=Interfered(count=4, candidates=12))),
    "project": (
        er(HYPERPARAMETERS, rehearsal=Nothing()),
        er(HYPERPARAMETERS, rehearsal=Nothing(), gradient=(Project(count=12),)),
    ),
    "diverse": (ER, er(HYPERPARAMETERS, admission=Diverse(batches=3, size=4))),
    "validation set": (ER, er(HYPERPARAMETERS, readout=BiasCorrected(share=0.4))),
    "optimizer": (ER, er(HYPERPARAMETERS, optimizer=SGD())),
    "shuffled": (ER, er(HYPERPARAMETERS, rehearsal=Shuffled(count=4))),
    "cosine": (
        er(HYPERPARAMETERS, schedule=Constant(initial_lr=0.01)),
        er(HYPERPARAMETERS, schedule=Cosine(initial_lr=0.01)),
    ),
    "multistep": (
        er(HYPERPARAMETERS, schedule=MultiStep(initial_lr=0.01)),
        er(HYPERPARAMETERS, schedule=MultiStep(initial_lr=0.01, milestones=(2, 4))),
    ),
    "refit at a boundary": (RM, rm(HYPERPARAMETERS, readout=Plain(), refit=None)),
    "refit's epochs": (RM, rm(HYPERPARAMETERS, readout=Refit(at="boundary", epochs=3))),
    "refit's clipping": (RM, rm(HYPERPARAMETERS, refit=dataclasses.replace(RM.refit, gradient=(Clip(norm=1e-3),)))),
    "refit's schedule": (RM, rm(HYPERPARAMETERS, refit=dataclasses.replace(RM.refit, schedule=MultiStep()))),
    "refit's optimizer": (RM, rm(HYPERPARAMETERS, refit=dataclasses.replace(RM.refit, optimizer=Adam()))),
    "refit's rows": (RM, rm(HYPERPARAMETERS, refit=dataclasses.replace(RM.refit, rehearsal=Shuffled(count=5)))),
    "redrawn head": (RM, rm(HYPERPARAMETERS, head=Head(moments="rebuild"))),
    "rebuilt optimizer": (RM, rm(HYPERPARAMETERS, head=Head(moments="keep", redraw="all"))),
    "released rm": (RM, RM.released()),
    "head moments": (ER, er(HYPERPARAMETERS, head=Head(moments="keep"))),
    "redrawn bias": (ER, er(HYPERPARAMETERS, head=Head(redraw="bias"))),
    "released clib": (CLIB, dataclasses.replace(method("clib-released", HYPERPARAMETERS), schedule=QUICK)),
}


@dataclasses.dataclass(frozen=True)
class Stream:
    """The samples of the fixture, the same in every test, as an argument that can be cached."""

    samples: list = dataclasses.field(compare=False)


@functools.cache  # most pairs share one side
def weights(method, samples, augment=Augment(pad=1)):  # noqa: B008  frozen
    learner = new_learner(method, network="mlp:width=12", augment=augment)
    for at, (image, label) in enumerate(samples.samples * 2, start=1):
        learner.observe(image, label)
        if at in (30, 90):
            learner.end_task()
    return torch.cat([p.detach().flatten() for p in learner.context.network.parameters()])


@pytest.mark.quick("importance against balanced", "diverse", "interfered", "refit at a boundary", "head moments")
@pytest.mark.parametrize("pair", PAIRS)
def test_the_part_makes_a_difference(pair, samples):
    one, other = PAIRS[pair]
    assert not torch.equal(weights(one, Stream(samples)), weights(other, Stream(samples)))


ANSWERS = {
    "fresh networks": (
        gdumb(HYPERPARAMETERS, readout=Refit(epochs=2)),
        gdumb(HYPERPARAMETERS, readout=Refit(epochs=3)),
    ),
    "cosine floor": (
        gdumb(HYPERPARAMETERS, readout=Refit(epochs=4)),
        gdumb(HYPERPARAMETERS, readout=Refit(epochs=4), refit=rm(HYPERPARAMETERS).refit),
    ),
    "everything": (
        gdumb(HYPERPARAMETERS, readout=Refit(epochs=2)),
        joint(HYPERPARAMETERS, readout=Refit(at="end", epochs=2)),
    ),
}


@pytest.mark.parametrize("pair", ANSWERS)
def test_the_readout_makes_a_difference(pair, samples, questions):
    answers = []
    for one in ANSWERS[pair]:
        learner = new_learner(one, network="mlp:width=12")
        for image, label in samples:
            learner.observe(image, label)
        answers.append(learner.logits(questions))
    assert not torch.equal(*answers)


@pytest.mark.parametrize(
    "augment",
    [
        Augment(pad=0, flip=True, cutmix=0.5),
        Augment(pad=1, flip=False, cutmix=0.5),
        Augment(pad=1, flip=True, cutmix=0.0),
    ],
)
def test_each_augmentation_makes_a_difference(augment, samples):
    assert not torch.equal(weights(ER, Stream(samples)), weights(ER, Stream(samples), augment))
