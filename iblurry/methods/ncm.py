"""NCM: the mean of the features of each class, and the nearest one answers; nothing is trained."""

from __future__ import annotations

from fractions import Fraction

from iblurry.methods.method import Method, Pace
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Constant, Discard, Nothing, RunningMean


@recipe(paper="Mensink et al., Distance-based image classification: generalizing to new classes, PAMI 2013")
def ncm(hyperparameters: Hyperparameters) -> Method:
    """Features of a body that is not trained; the class with the nearest mean over all samples seen answers."""
    return Method(
        name="ncm",
        pace=Pace(stream_batch=1, train_stream=False, updates_per_sample=Fraction(0), store_when="before"),
        admission=Discard(),
        rehearsal=Nothing(),
        schedule=Constant(),  # of no effect: no update is taken
        readout=RunningMean(),
    )
