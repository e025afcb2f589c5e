"""SDP: features are held to those of a scheduled average of past selves."""

from __future__ import annotations

from iblurry.methods.clib import clib
from iblurry.methods.method import Head, Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Balanced, ByConfidence, ScheduledPrior


@recipe(paper="Koh et al., Online boundary-free continual learning by scheduled data prior, ICLR 2023")
def sdp(hyperparameters: Hyperparameters) -> Method:
    """Batches of a class-balanced memory; a scheduled average of past selves teaches, as far as it is trusted."""
    return clib(
        hyperparameters,
        name="sdp",
        admission=Balanced(),
        terms=(ScheduledPrior(),),
        schedule=ByConfidence(),
        head=Head(moments="keep", train=False),  # as released: rows stay as they were drawn
    )
