"""What a method costs and keeps, summed over its parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iblurry.components.component import hyperparameters
from iblurry.components.lazy_torch import Tensor
from iblurry.compute import Cost, Passes, Workload
from iblurry.errors import InputError
from iblurry.methods.method import Method

if TYPE_CHECKING:
    from iblurry.learner.learner import Learner

HOLDINGS = ("memory", "stream", "aside", "parts", "network", "optimizer")


@dataclass(frozen=True, kw_only=True)
class MethodCost:
    """Images that pass through a network in the steady state: memory full, every class met, not the first task.

    Parameters
    ----------
    sample : Passes
        For each sample of the stream, with the updates it earns.
    query : Passes
        For each query after something new was learnt, besides one forward pass for each image it asks about.
    task : Passes
        For each end of a task.
    """

    sample: Passes
    query: Passes
    task: Passes


def cost(method: Method, memory: int, *, classes: int = 10) -> MethodCost:
    """The estimated cost of a method in the steady state.

    sample = updates per sample * (batch + parts per update + memory's loss / measure_every) + parts per sample offered

    The memory's loss is measured once for all parts that ask for it. Every sample is offered to the memory but those
    that a readout takes for itself; once its set is full it takes none.

    Parameters
    ----------
    method : Method
        The method, attached or not.
    memory : int
        The budget K of samples.
    classes : int
        Classes met.

    >>> from iblurry.methods import clib
    >>> cost(clib(), 500).sample
    Passes(forward=516.0, backward=16.0)
    """
    rows, pace = method.capacity(memory), method.pace
    if rows < 1 and not method.admission.keeps_none:
        raise InputError(
            f"memory={memory} leaves {method.name} no row: {method.samples_outside_memory(memory)} samples are kept "
            "outside the memory. Give more."
        )
    load = workload(method, memory, rows=rows, classes=classes)
    parts = sum((part.cost(load) for _, part in method.parts()), Cost())
    update = Passes(load.batch, load.batch) + parts.update + Passes(forward=measured_rows(method, rows))
    return MethodCost(sample=update * pace.updates_per_sample + parts.sample, query=parts.query, task=parts.task)


def workload(method: Method, memory: int, *, rows: int, classes: int, tasks: int = 1) -> Workload:
    """What decides the cost of parts while the memory holds so many rows and so many tasks have ended."""
    streamed = method.pace.stream_batch if method.pace.train_stream else 0
    rehearsal = method.rehearsal
    return Workload(
        streamed=streamed,
        batch=streamed + rehearsal.joins(min(rehearsal.rows_per_update, rows)),
        capacity=rows,
        budget=memory - method.pace.samples_outside_memory,
        classes=classes,
        tasks=tasks,
    )


def measured_rows(method: Method, rows: int) -> float:
    """Memory rows whose loss is measured, for each update on average."""
    rows = rows if method.pace.measure_rows is None else min(rows, method.pace.measure_rows)
    return rows / method.pace.measure_every if any(part.needs_losses for _, part in method.parts()) else 0.0


def stores(method: Method) -> list[str]:
    """What the method keeps besides its samples, the network and the optimizer's state; what parts share, once."""
    return list(dict.fromkeys(part.stores.format(**hyperparameters(part)) for _, part in method.parts() if part.stores))


def bytes_held(learner: Learner) -> dict[str, int]:
    """Bytes that its method needs from sample to sample, by what they are; the same throughout a run.

    memory: every row with its image or stored features, label, time of writing and columns; stream: samples that wait
    for their round; aside: samples that parts hold outside the memory; parts: what else is their state (a teacher,
    Fisher values); network, a frozen body included; and the optimizer's buffers. A network trained anew for each query
    takes the place of one that learns nothing online.
    """
    from iblurry.engine.optimizer_state import state_bytes

    method, context, memory = learner.method, learner.context, learner.context.memory
    refit, learns = method.refit, bool(method.pace.updates_per_sample)
    sample = _bytes([memory.images[:1], memory.labels[:1]])
    columns = _bytes(memory.state_dict()["columns"]) // (memory.capacity + 1) + memory.written_at.element_size()
    aside = sample * sum(part.samples_outside_memory(context.budget) for part in learner.parts.values())
    network, trained = _bytes(context.network.state_dict()), list(context.network.trainable().values())
    frozen = _bytes(dict(context.frozen.network.body.state_dict())) if context.frozen is not None else 0
    online = state_bytes(method.optimizer, trained) if learns else 0
    study = state_bytes(refit.optimizer, trained) if refit else 0
    is_fresh = refit is not None and not method.readout.needs_boundaries  # else it is the learner's own, started again
    return {
        "memory": memory.capacity * (sample + columns),
        "stream": sample * method.pace.stream_batch,
        "aside": aside,
        "parts": _bytes([shared.state_dict() for shared in context.shared.values()])
        + _bytes([part.state_dict() for part in learner.parts.values()])
        - aside,
        "network": network * (1 + (is_fresh and learns)) + frozen,
        "optimizer": online + study if is_fresh else max(online, study),
    }


def _bytes(value: Any) -> int:
    """Counts the bytes of all tensors in a value."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    inner: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_bytes, inner))
