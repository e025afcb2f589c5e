"""Builds the context of a learner: network, memory and pipeline, for images or for features of a frozen body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iblurry.augment.pipeline import FeaturePipeline, Pipeline
from iblurry.augment.transform import Transforms, check_transforms
from iblurry.engine.eager import Eager
from iblurry.errors import InputError
from iblurry.network.build import build
from iblurry.network.registry import AnyNetwork, Image, Initialise
from iblurry.network.stored import head_of, stored_shape
from iblurry.parts.context import Context
from iblurry.parts.memory import Memory
from iblurry.rng import Rng


def make_context(
    *,
    image: Image,
    rows: int,
    capacity: int,
    network: AnyNetwork,
    initialise: Initialise | None,
    freeze: str,
    augment: Transforms,
    mean: Sequence[float],
    std: Sequence[float],
    rng: Rng,
    engine: Eager,
    refits: bool = False,
    **others: Any,
) -> Context:
    """What the parts of a learner share, at the start.

    Where freeze is "body", the network is a head on stored features and `frozen` has the body that computes them.

    Parameters
    ----------
    image, network, initialise, freeze, augment, mean, std : any
        Those of a `Learner`, checked.
    rows, capacity : int
        Of the head, and of the memory.
    rng : Rng
        Of all random numbers.
    engine : Eager
        What steps run on.
    refits : bool
        Whether the body's first weights are needed again.
    **others
        Further fields of the context.
    """
    built = build(network, image, rows, rng=rng, initialise=initialise, freeze=freeze)
    if refits:
        built.keep_initial()
    on = engine.device
    both: dict[str, Any] = {"rng": rng, "engine": engine}
    mean, std = getattr(built.body, "normalization", (mean, std))  # of one trained elsewhere
    pixels = Pipeline(augment, shape=image, mean=mean, std=std, device=on)
    if freeze != "body":
        memory = Memory(capacity, image, on)
        return Context(network=engine.setup(built).eval(), memory=memory, pipeline=pixels, **both, **others)
    if check_transforms(augment):
        raise InputError(
            f"augment={augment!r} cannot be used with freeze='body', where features are computed once and "
            "stored; leave it out, or give the names of the body's layers as `freeze`."
        )
    memory, head = Memory(capacity, stored_shape(built.features), on), engine.setup(head_of(built)).eval()
    frozen = Context(network=engine.setup(built).eval(), memory=memory, pipeline=pixels, budget=0, **both)
    pipeline = FeaturePipeline(built.features, on)
    return Context(network=head, memory=memory, pipeline=pipeline, frozen=frozen, **both, **others)
