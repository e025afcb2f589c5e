"""With each part learning takes another course than without it: a part that silently does nothing fails here."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from iblurry.augment.pipeline import Augment
from iblurry.engine.optimizer import SGD, Adam
from iblurry.method import Head
from iblurry.methods import Tuning, clib, er, gdumb, joint, method, rm
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

TUNING = Tuning(batch=8)
QUICK = Adaptive(trial=2, ignore=2, history=3)
CLIB, ER = clib(TUNING, schedule=QUICK), er(TUNING)
RM = rm(TUNING, readout=Refit(at="boundary", epochs=2))
PAIRS = {
    "importance against balanced": (CLIB, clib(TUNING, schedule=QUICK, admission=Balanced())),
    "importance against reservoir": (CLIB, clib(TUNING, schedule=QUICK, admission=Reservoir())),
    "importance rule": (CLIB, clib(TUNING, schedule=QUICK, admission=Importance(rule="released"))),
    "importance decrease": (CLIB, clib(TUNING, schedule=QUICK, admission=Importance(decrease="running"))),
    "importance step": (CLIB, clib(TUNING, schedule=QUICK, admission=Importance(step=0.9))),
    "memory-only training": (CLIB, dataclasses.replace(CLIB, pace=ER.pace, rehearsal=ER.rehearsal)),
    "adaptive rate": (CLIB, clib(TUNING, schedule=Constant())),
    "adaptive rule": (CLIB, clib(TUNING, schedule=QUICK.released())),
    "adaptive trial": (CLIB, clib(TUNING, schedule=dataclasses.replace(QUICK, trial=3))),
    "exponential decay": (ER, er(TUNING, schedule=Constant())),
    "restart on a class": (ER, er(TUNING, schedule=Exponential(restart_on_class=False, gamma=0.9999))),
    "rehearsal": (ER, er(TUNING, rehearsal=Nothing())),
    "rows rehearsed": (ER, er(TUNING, rehearsal=Uniform(count=6))),
    "clip": (er(TUNING, gradient=(Clip(norm=1e-3),)), ER),
    "elastic": (ER, er(TUNING, terms=(CrossEntropy(), Elastic(strength=1e3)))),
    "distil": (ER, er(TUNING, terms=(CrossEntropy(), Distil()))),
    "interfered": (ER, er(TUNING, rehearsal=Interfered(count=4, candidates=12))),
    "project": (er(TUNING, rehearsal=Nothing()), er(TUNING, rehearsal=Nothing(), gradient=(Project(count=12),))),
    "diverse": (ER, er(TUNING, admission=Diverse(batches=3, size=4))),
    "validation set": (ER, er(TUNING, readout=BiasCorrected(share=0.4))),
    "optimizer": (ER, er(TUNING, optimizer=SGD())),
    "shuffled": (ER, er(TUNING, rehearsal=Shuffled(count=4))),
    "cosine": (er(TUNING, schedule=Constant(rate=0.01)), er(TUNING, schedule=Cosine(rate=0.01))),
    "multistep": (
        er(TUNING, schedule=MultiStep(rate=0.01)),
        er(TUNING, schedule=MultiStep(rate=0.01, milestones=(2, 4))),
    ),
    "refit at a boundary": (RM, rm(TUNING, readout=Plain(), refit=None)),
    "refit's epochs": (RM, rm(TUNING, readout=Refit(at="boundary", epochs=3))),
    "refit's clipping": (RM, rm(TUNING, refit=dataclasses.replace(RM.refit, gradient=(Clip(norm=1e-3),)))),
    "refit's schedule": (RM, rm(TUNING, refit=dataclasses.replace(RM.refit, schedule=MultiStep()))),
    "refit's optimizer": (RM, rm(TUNING, refit=dataclasses.replace(RM.refit, optimizer=Adam()))),
    "refit's rows": (RM, rm(TUNING, refit=dataclasses.replace(RM.refit, rehearsal=Shuffled(count=5)))),
    "redrawn head": (RM, rm(TUNING, head=Head(moments="rebuild"))),
    "rebuilt optimizer": (RM, rm(TUNING, head=Head(moments="keep", redraw="all"))),
    "released rm": (RM, RM.released()),
    "head moments": (ER, er(TUNING, head=Head(moments="keep"))),
    "redrawn bias": (ER, er(TUNING, head=Head(redraw="bias"))),
    "released clib": (CLIB, dataclasses.replace(method("clib-released", TUNING), schedule=QUICK)),
}


def weights(learner, samples):
    for at, (image, label) in enumerate(samples * 3, start=1):
        learner.observe(image, label)
        if at in (30, 90):
            learner.end_task()
    return torch.cat([p.detach().flatten() for p in learner.bench.network.parameters()])


@pytest.mark.parametrize("pair", PAIRS)
def test_the_part_makes_a_difference(pair, samples):
    one, other = PAIRS[pair]
    assert not torch.equal(
        weights(new_learner(one, network="mlp"), samples), weights(new_learner(other, network="mlp"), samples)
    )


ANSWERS = {
    "fresh networks": (gdumb(TUNING, readout=Refit(epochs=2)), gdumb(TUNING, readout=Refit(epochs=3))),
    "cosine floor": (
        gdumb(TUNING, readout=Refit(epochs=4)),
        gdumb(TUNING, readout=Refit(epochs=4), refit=rm(TUNING).refit),
    ),
    "everything": (gdumb(TUNING, readout=Refit(epochs=2)), joint(TUNING, readout=Refit(at="end", epochs=2))),
}


@pytest.mark.parametrize("pair", ANSWERS)
def test_the_readout_makes_a_difference(pair, samples, questions):
    answers = []
    for one in ANSWERS[pair]:
        learner = new_learner(one, network="mlp")
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
    usual = weights(new_learner(ER, augment=Augment(pad=1)), samples)
    assert not torch.equal(usual, weights(new_learner(ER, augment=augment), samples))
