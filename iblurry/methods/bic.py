"""BiC: distil what was known, and straighten the bias towards what is new."""

from __future__ import annotations

from iblurry.methods.er import er
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import BiasCorrected, Clip, CrossEntropy, Distil


@recipe(paper="Wu et al., Large scale incremental learning, CVPR 2019")
def bic(hyperparameters: Hyperparameters) -> Method:
    """ER that distils its earlier answers and corrects the logits of new classes on a small validation set."""
    return er(
        hyperparameters,
        name="bic",
        terms=(CrossEntropy(), Distil()),
        gradient=(Clip(norm=10.0),),
        readout=BiasCorrected(),
    )
