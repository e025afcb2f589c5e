"""EWC++: ER whose parameters are held by springs as stiff as they were important."""

from __future__ import annotations

from iblurry.methods.er import er
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import CrossEntropy, Elastic


@recipe(
    paper="Chaudhry et al., Riemannian walk for incremental learning, ECCV 2018; with ER as in Koh et al., ICLR 2022"
)
def ewc(hyperparameters: Hyperparameters) -> Method:
    """ER with a quadratic penalty on leaving the last task's parameters, weighed by a running Fisher estimate."""
    return er(hyperparameters, name="ewc", terms=(CrossEntropy(), Elastic()))
