"""RM: see the stream once in passing, and study a balanced memory thoroughly at the end of each task."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from iblurry.engine.optimizer import SGD
from iblurry.methods.method import Head, Method, Pace, Training
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Balanced, Clip, Constant, Cosine, MultiStep, Nothing, Refit, Shuffled


def _trains_norm_on_imagenet(method: Method) -> Method:
    """The released RM refits in the mode the last query left: eval, but on ImageNet no query falls on a task end."""
    if not isinstance(method.readout, Refit) or not (method.refit and isinstance(method.refit.schedule, MultiStep)):
        return method
    return dataclasses.replace(method, readout=dataclasses.replace(method.readout, frozen_norm=False))


@recipe(
    paper="Bang et al., Rainbow memory: Continual learning with a memory of diverse samples, CVPR 2021",
    as_released=_trains_norm_on_imagenet,
)
def rm(hyperparameters: Hyperparameters) -> Method:
    """One step on each batch of new samples, and at every task end hundreds of epochs on a class-balanced memory."""
    return Method(
        name="rm",
        pace=Pace(stream_batch=hyperparameters.batch, updates_per_sample=Fraction(1, hyperparameters.batch)),
        admission=Balanced(),
        rehearsal=Nothing(),
        schedule=Constant(initial_lr=0.05),
        optimizer=SGD(),
        readout=Refit(at="boundary", epochs=hyperparameters.epochs),
        head=Head(moments="rebuild", redraw="all"),
        refit=Training(
            rehearsal=Shuffled(count=hyperparameters.batch),
            gradient=(Clip(norm=10.0),),
            schedule=MultiStep(milestones=hyperparameters.milestones)
            if hyperparameters.milestones
            else Cosine(floor=5e-4),
            optimizer=SGD(),
        ),
    )
