"""ER-MIR: replay what the new samples are about to spoil."""

from __future__ import annotations

from iblurry.methods.er import er
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Interfered


@recipe(paper="Aljundi et al., Online continual learning with maximally interfered retrieval, NeurIPS 2019")
def mir(hyperparameters: Hyperparameters) -> Method:
    """ER that rehearses the remembered samples whose loss a step on the new ones would raise most."""
    half = hyperparameters.batch - hyperparameters.batch // 2
    count = min(half, Interfered.candidates)  # half of ImageNet's batch is more than the candidates: then all of them
    return er(hyperparameters, name="mir", rehearsal=Interfered(count=count))
