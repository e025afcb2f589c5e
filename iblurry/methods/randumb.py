"""RanDumb: random Fourier features of pixels and a linear discriminant; no representation is learnt at all."""

from __future__ import annotations

from iblurry.methods.method import Method
from iblurry.methods.ncm import ncm
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Discriminant


@recipe(paper="Prabhu et al., RanDumb: random representations outperform online continual learning, NeurIPS 2024")
def randumb(hyperparameters: Hyperparameters) -> Method:
    """Random Fourier features of pixels, without a network; class means and one covariance of all samples answer."""
    return ncm(hyperparameters, name="randumb", readout=Discriminant(of="pixels", expand="fourier"))
