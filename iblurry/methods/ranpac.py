"""RanPAC: ridge regression on random features of a body that is not trained."""

from __future__ import annotations

from iblurry.methods.method import Method
from iblurry.methods.ncm import ncm
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Ridge


@recipe(paper="McDonnell et al., RanPAC: random projections and pre-trained models, NeurIPS 2023")
def ranpac(hyperparameters: Hyperparameters) -> Method:
    """Features of a body that is not trained, projected at random; ridge regression over all samples seen answers."""
    return ncm(hyperparameters, name="ranpac", readout=Ridge())
