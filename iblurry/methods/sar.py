"""SAR: rehearses what was rehearsed least, by sample and by similar classes."""

from __future__ import annotations

from iblurry.methods.clib import clib_exponential
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Balanced, LeastUsed


@recipe(
    paper="Seo, Koh and Choi, Budgeted online continual learning by adaptive layer freezing and frequency-based "
    "sampling, ICLR 2025 (the sampling)"
)
def sar(hyperparameters: Hyperparameters) -> Method:
    """Batches of a class-balanced memory, drawn by how little each row and classes like its own were used."""
    rehearsal = LeastUsed(count=hyperparameters.batch)
    return clib_exponential(hyperparameters, name="sar", admission=Balanced(), rehearsal=rehearsal)
