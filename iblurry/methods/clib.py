"""CLIB: train on the memory alone, keep the samples that matter, and let the loss choose the learning rate."""

from __future__ import annotations

import dataclasses

from iblurry.methods.er import er
from iblurry.methods.method import Head, Method, Pace
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import Adaptive, Averaged, Balanced, Exponential, Importance, Reservoir, Uniform
from iblurry.storage.untrusted import exact

PAPER = (
    "Koh et al., Online Continual Learning on Class Incremental Blurry Task Configuration with Anytime Inference, "
    "ICLR 2022"
)


@recipe(paper=PAPER)
def clib(hyperparameters: Hyperparameters) -> Method:
    """Every sample enters a class-balanced memory by importance; batches come from the memory only; the rate adapts."""
    return Method(
        name="clib",
        pace=Pace(
            stream_batch=1,
            train_stream=False,
            updates_per_sample=exact(hyperparameters.updates_per_sample),
            store_when="before",
            measure_every=hyperparameters.measure_every,
        ),
        admission=Importance(),
        rehearsal=Uniform(count=hyperparameters.batch),
        schedule=Adaptive(),
        head=Head(moments="keep"),
    )


@recipe(paper=PAPER + " (Table 3, without importance)")
def clib_reservoir(hyperparameters: Hyperparameters) -> Method:
    """CLIB with a reservoir for a memory: neither importance nor class balance."""
    return clib(hyperparameters, name="clib-reservoir", admission=Reservoir())


@recipe(paper=PAPER + " (Table 3, without memory-only training)")
def clib_stream(hyperparameters: Hyperparameters) -> Method:
    """CLIB with ER's batches: half new samples, half memory.

    A trial of the adaptive learning rate is ten rounds, here of eight samples: it spans eight times CLIB's updates.
    """
    base = er(hyperparameters)
    return clib(hyperparameters, name="clib-stream", pace=base.pace, rehearsal=base.rehearsal)


def _decays_per_round(method: Method) -> Method:
    """The released CLIB steps its schedule once per training call, unlike its ER."""
    if not isinstance(method.schedule, Exponential):
        return method
    return dataclasses.replace(method, schedule=dataclasses.replace(method.schedule, per="round"))


@recipe(paper=PAPER + " (Table 3, without adaptive learning rate)", as_released=_decays_per_round)
def clib_exponential(hyperparameters: Hyperparameters) -> Method:
    """CLIB with ER's schedule: exponential decay, reset by each new class."""
    return clib(hyperparameters, name="clib-exponential", schedule=Exponential(gamma=hyperparameters.gamma))


@recipe(paper="CLIB with the sampler of Prabhu et al., GDumb, ECCV 2020")
def clib_balanced(hyperparameters: Hyperparameters) -> Method:
    """CLIB with class balance but no importance: tells what each of the two is worth."""
    return clib(hyperparameters, name="clib-balanced", admission=Balanced())


@recipe(paper=f"{PAPER}; answers of Soutif-Cormerais et al., Temporal ensembles, CoLLAs 2023")
def clib_averaged(hyperparameters: Hyperparameters) -> Method:
    """CLIB, answered by a moving average of its weights."""
    return clib(hyperparameters, name="clib-averaged", readout=Averaged())
