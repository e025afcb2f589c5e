"""DER++: experience replay that also replays the logits which were stored with the samples."""

from __future__ import annotations

import dataclasses

from iblurry.methods.er import er
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import StoredLogits, Uniform


@recipe(paper="Buzzega et al., Dark experience for general continual learning, NeurIPS 2020")
def derpp(hyperparameters: Hyperparameters) -> Method:
    """A third of the batch is new; of the remembered rest half keeps its labels, half the logits stored with it."""
    base, remembered = er(hyperparameters), 2 * hyperparameters.batch // 3
    return dataclasses.replace(
        base,
        name="derpp",
        pace=dataclasses.replace(base.pace, stream_batch=hyperparameters.batch - remembered),
        rehearsal=Uniform(count=remembered),
        terms=(StoredLogits(),),
    )
