"""BALM: balanced memory, logit adjustment, momentum teacher. Ours."""

from __future__ import annotations

import dataclasses

from iblurry.methods.er import er
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import AdjustedCrossEntropy, Averaged, AverageTeacher, Balanced, Constant


@recipe(paper="this project; see docs/methods/balm.md")
def balm(hyperparameters: Hyperparameters) -> Method:
    """New samples and a class-balanced memory; logits adjusted by class frequency; an average teaches and answers."""
    base = er(hyperparameters)
    per_sample = 2 * base.pace.updates_per_sample
    return dataclasses.replace(
        base,
        name="balm",
        pace=dataclasses.replace(base.pace, updates_per_sample=per_sample, early_samples=5000, early_updates=4),
        admission=Balanced(),
        terms=(AdjustedCrossEntropy(), AverageTeacher(decay=0.9995)),
        schedule=Constant(),
        readout=Averaged(decay=0.9995, warm_up=True),
    )
