"""SLDA: streaming linear discriminant analysis of features that are not trained."""

from __future__ import annotations

from iblurry.methods.method import Method
from iblurry.methods.ncm import ncm
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Discriminant


@recipe(paper="Hayes and Kanan, Lifelong machine learning with deep streaming LDA, CVPR workshops 2020")
def slda(hyperparameters: Hyperparameters) -> Method:
    """Features of a body that is not trained; class means and one covariance over all samples seen answer."""
    return ncm(hyperparameters, name="slda", readout=Discriminant())
