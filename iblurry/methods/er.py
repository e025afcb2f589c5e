"""ER: replay as many remembered samples as new ones."""

from __future__ import annotations

from iblurry.methods.method import Method, Pace
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Averaged, Constant, Exponential, Reservoir, Uniform
from iblurry.storage.untrusted import exact

PAPER = "Rolnick et al., Experience replay for continual learning, NeurIPS 2019; Baseline-ER of Koh et al., ICLR 2022"


@recipe(paper=PAPER)
def er(hyperparameters: Hyperparameters) -> Method:
    """Each batch is half new samples, half samples drawn from a reservoir of the stream."""
    half = hyperparameters.batch // 2
    return Method(
        name="er",
        pace=Pace(
            stream_batch=half,
            updates_per_sample=exact(hyperparameters.updates_per_sample),
            store_when="after",  # a sample is trained on before it may enter the memory
            measure_every=hyperparameters.measure_every,
        ),
        admission=Reservoir(),
        rehearsal=Uniform(count=hyperparameters.batch - half),
        schedule=Exponential(gamma=hyperparameters.gamma, restart_on_class=True),
    )


@recipe(paper=PAPER)
def er_constant(hyperparameters: Hyperparameters) -> Method:
    """ER at a rate that never moves (a row of the paper's table of schedules)."""
    return er(hyperparameters, name="er-constant", schedule=Constant())


@recipe(paper=f"{PAPER}; answers of Soutif-Cormerais et al., Temporal ensembles, CoLLAs 2023")
def er_averaged(hyperparameters: Hyperparameters) -> Method:
    """ER, answered by a moving average of its weights."""
    return er(hyperparameters, name="er-averaged", readout=Averaged())
