"""RM: see the stream once in passing, and study a balanced memory thoroughly at the end of each task."""

from __future__ import annotations

from fractions import Fraction

from iblurry.course import Course
from iblurry.engine.optimizer import SGD
from iblurry.method import Head, Method, Pace
from iblurry.methods.recipe import Tuning, recipe
from iblurry.parts import Balanced, Clip, Constant, Cosine, MultiStep, Nothing, Refit, Shuffled


@recipe(paper="Bang et al., Rainbow memory: Continual learning with a memory of diverse samples, CVPR 2021")
def rm(tuning: Tuning) -> Method:
    """One step on each batch of new samples, and at every task end hundreds of epochs on a class-balanced memory."""
    return Method(
        name="rm",
        pace=Pace(gather=tuning.batch, updates_per_sample=Fraction(1, tuning.batch)),
        admission=Balanced(),
        rehearsal=Nothing(),
        schedule=Constant(rate=0.05),
        optimizer=SGD(),
        readout=Refit(at="boundary", epochs=tuning.epochs),
        head=Head(moments="rebuild", redraw="all"),
        refit=Course(
            rehearsal=Shuffled(count=tuning.batch),
            gradient=(Clip(norm=10.0),),
            schedule=MultiStep(milestones=tuning.milestones) if tuning.milestones else Cosine(floor=5e-4),
            optimizer=SGD(),
        ),
    )
