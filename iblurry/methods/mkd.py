"""MKD: experience replay taught by a moving average of itself."""

from __future__ import annotations

from iblurry.methods.er import er
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Averaged, CrossEntropy, MomentumDistil


@recipe(paper="Michel et al., Rethinking momentum knowledge distillation in online continual learning, ICML 2024")
def mkd(hyperparameters: Hyperparameters) -> Method:
    """ER and a teacher, the moving average of the weights; the mean of both answers."""
    terms = (CrossEntropy(), MomentumDistil())
    return er(hyperparameters, name="mkd", terms=terms, readout=Averaged(decay=0.99, of="both"))
