"""A-GEM: learn from the stream, but never in a direction that hurts the memory."""

from __future__ import annotations

from iblurry.methods.er import er
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Nothing, Project


@recipe(paper="Chaudhry et al., Efficient lifelong learning with A-GEM, ICLR 2019")
def agem(hyperparameters: Hyperparameters) -> Method:
    """Batches of new samples only, their gradient projected so that the loss of remembered ones does not rise."""
    return er(hyperparameters, name="agem", rehearsal=Nothing(), gradient=(Project(),))
