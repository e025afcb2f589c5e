"""GSS: ER with a memory of samples whose gradients point different ways."""

from __future__ import annotations

from iblurry.methods.er import er
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Diverse


@recipe(paper="Aljundi et al., Gradient based sample selection for online continual learning, NeurIPS 2019")
def gss(hyperparameters: Hyperparameters) -> Method:
    """ER whose memory prefers samples with gradients unlike those it already holds (the greedy variant)."""
    return er(hyperparameters, name="gss", admission=Diverse())
