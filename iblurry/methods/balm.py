"""BALM: balanced memory, logit adjustment, momentum teacher. Ours."""

from __future__ import annotations

from iblurry.method import Method, Pace, exact
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import AdjustedCrossEntropy, Averaged, AverageTeacher, Balanced, Exponential, Uniform


@recipe(paper="this project; see docs/methods/balm.md")
def balm(hyperparameters: Hyperparameters) -> Method:
    """New samples and a class-balanced memory; logits adjusted by class frequency; an average teaches and answers."""
    half = hyperparameters.batch // 2
    return Method(
        name="balm",
        pace=Pace(
            stream_batch=half,
            updates_per_sample=2 * exact(hyperparameters.updates_per_sample),
            store_when="after",
            measure_every=hyperparameters.measure_every,
        ),
        admission=Balanced(),
        rehearsal=Uniform(count=hyperparameters.batch - half),
        terms=(AdjustedCrossEntropy(), AverageTeacher()),
        schedule=Exponential(gamma=hyperparameters.gamma),
        readout=Averaged(decay=0.999, warm_up=True),
    )
