"""GDumb: keep a balanced memory, learn nothing from the stream, and train from scratch when asked."""

from __future__ import annotations

from fractions import Fraction

from iblurry.engine.optimizer import SGD
from iblurry.methods.method import Method, Pace, Training
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Balanced, Constant, Cosine, Nothing, Refit, Shuffled

WHOLE_CYCLES = 255  # the released program ends one epoch before the last cosine cycle does


@recipe(paper="Prabhu et al., GDumb: A simple approach that questions our progress in continual learning, ECCV 2020")
def gdumb(hyperparameters: Hyperparameters) -> Method:
    """A class-balanced memory, and for each query a network trained on nothing but that, from scratch."""
    return Method(
        name="gdumb",
        pace=Pace(stream_batch=1, train_stream=False, updates_per_sample=Fraction(0), store_when="before"),
        admission=Balanced(),
        rehearsal=Nothing(),
        schedule=Constant(initial_lr=0.05),  # of no effect: nothing is learnt online
        readout=Refit(at="query", epochs=min(WHOLE_CYCLES, hyperparameters.epochs)),
        refit=Training(rehearsal=Shuffled(count=hyperparameters.batch), schedule=Cosine(floor=0.0), optimizer=SGD()),
    )
