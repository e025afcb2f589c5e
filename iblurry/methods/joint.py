"""Joint: everything at once, the bound that no learner of a stream is expected to pass."""

from __future__ import annotations

from iblurry.methods.gdumb import gdumb
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.methods.rm import rm
from iblurry.parts import Everything, Refit


@recipe(paper="The upper bound of Koh et al., ICLR 2022, Table 1; its epochs and schedule are not told, RM's are used")
def joint(hyperparameters: Hyperparameters) -> Method:
    """Keeps the whole stream, whatever the budget, and trains on all of it when the stream has ended."""
    return gdumb(
        hyperparameters,
        name="joint",
        admission=Everything(),
        readout=Refit(at="end", epochs=hyperparameters.epochs),
        refit=rm(hyperparameters).refit,
    )
