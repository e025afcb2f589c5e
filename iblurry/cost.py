"""What a method costs and keeps, summed over its parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from iblurry.errors import InputError
from iblurry.learner import Learner
from iblurry.method import Method
from iblurry.parts.cost import Cost, Load, Passes
from iblurry.parts.part import hyper_parameters

HOLDINGS = ("memory", "stream", "aside", "parts", "network", "optimizer")


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


def bytes_held(learner: Learner) -> dict[str, int]:
    """Bytes that its method needs from sample to sample, by what they are; the same throughout a run.

    memory: every row with its image, label, time of writing and columns; stream: samples gathered for a round; aside:
    samples that parts hold outside the memory; parts: what else is their state (a teacher, Fisher values); network; and
    the optimizer's moments. A network trained anew for each query takes the place of one that learns nothing online.
    """
    method, context, memory = learner.method, learner.context, learner.context.memory
    refit, learns = method.refit, bool(method.pace.updates_per_sample)
    sample = _bytes([memory.images[:1], memory.labels[:1]])
    columns = _bytes(memory.state_dict()["columns"]) // (memory.capacity + 1) + memory.written_at.element_size()
    aside = sample * sum(part.holds(context.budget) for part in learner.parts.values())
    network, weights = _bytes(context.network.state_dict()), _bytes(list(context.network.parameters()))
    online, study = method.optimizer.moments if learns else 0, refit.optimizer.moments if refit else 0
    is_fresh = refit is not None and not method.readout.needs_boundaries  # else it is the learner's own, started again
    return {
        "memory": memory.capacity * (sample + columns),
        "stream": sample * method.pace.stream_batch,
        "aside": aside,
        "parts": _bytes([part.state_dict() for part in learner.parts.values()]) - aside,
        "network": network * (1 + (is_fresh and learns)),
        "optimizer": weights * (online + study if is_fresh else max(online, study)),
    }


def _bytes(value: Any) -> int:
    """Of all tensors in it."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    inner: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_bytes, inner))


def _load(method: Method, memory: int, classes: int) -> Load:
    capacity = method.capacity(memory)
    if capacity < 1:
        raise InputError(
            f"memory={memory} leaves {method.name} no row: {method.holds(memory)} samples are kept outside the memory. "
            "Give more."
        )
    streamed = method.pace.stream_batch if method.pace.train_stream else 0
    return Load(
        streamed=streamed,
        batch=streamed + method.rehearsal.joins(capacity),
        capacity=capacity,
        budget=memory - method.pace.holds,
        classes=classes,
    )
