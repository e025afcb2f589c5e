"""What a method costs and keeps, summed over its parts."""

from __future__ import annotations

from dataclasses import dataclass

from iblurry.errors import InputError
from iblurry.method import Method
from iblurry.parts.cost import Cost, Load, Passes
from iblurry.parts.part import hyper_parameters


@dataclass(frozen=True, kw_only=True)
class Total:
    """Images that pass through a network in the steady state: memory full, every class met, not the first task."""

    sample: Passes  # each sample of the stream, with the updates it earns
    query: Passes  # each query after something new was learnt, besides one forward pass for each image it asks about
    task: Passes  # each end of a task


def cost(method: Method, memory: int, *, classes: int = 10) -> Total:
    """The method's total at a budget of `memory` samples and so many classes.

    sample = updates per sample * (batch + parts per update + memory's loss / measure_every) + parts per sample offered

    The memory's loss is measured once for all parts that ask for it. Every sample is offered to the memory but those
    that a readout claims for itself; once its set is full it claims none.

    >>> from iblurry.methods.clib import clib
    >>> cost(clib(), 500).sample
    Passes(forward=516.0, backward=16.0)
    """
    load, pace = _load(method, memory, classes), method.pace
    parts = sum((part.cost(load) for _, part in method.parts()), Cost())
    measures = any(part.needs_losses for _, part in method.parts())
    measure = Passes(forward=load.capacity / pace.measure_every) if measures else Passes()
    update = Passes(load.batch, load.batch) + parts.update + measure
    return Total(sample=update * pace.updates_per_sample + parts.sample, query=parts.query, task=parts.task)


def stores(method: Method) -> list[str]:
    """What the method keeps besides its samples, the network and the optimizer's state: a phrase for each part."""
    return [part.stores.format(**hyper_parameters(part)) for _, part in method.parts() if part.stores]


def _load(method: Method, memory: int, classes: int) -> Load:
    capacity = method.capacity(memory)
    if capacity < 1:
        raise InputError(
            f"memory={memory} leaves {method.name} no row: {method.holds(memory)} samples are kept outside the memory. "
            "Give more."
        )
    streamed = method.pace.gather if method.pace.train_stream else 0
    return Load(
        streamed=streamed,
        batch=streamed + method.rehearsal.joins(capacity),
        capacity=capacity,
        budget=memory - method.pace.holds,
        classes=classes,
    )
