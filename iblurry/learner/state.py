"""The state of a learner: all that a resume needs, taken by reference and put back in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from iblurry.learner.arguments import plain_label
from iblurry.parts.memory import Sample

if TYPE_CHECKING:
    from iblurry.learner.learner import Learner


def take(learner: Learner) -> dict[str, Any]:
    """See `Learner.state_dict`. A frozen body is no part of it: the learner's arguments make the same again."""
    context, waiting = learner.context, learner._together(learner.stream_batch)
    return {
        "network": dict(context.network.state_dict()),
        "labels": list(learner.labels),
        "optimizer": learner.trainer.optimizer_state(),
        "memory": context.memory.state_dict(),
        "parts": {name: part.state_dict() for name, part in learner.parts.items()},
        "shared": {name: shared.state_dict() for name, shared in context.shared.items()},
        "stream batch": {"images": waiting.images, "labels": waiting.labels},
        "refit": learner.refitter.state_dict(),
        "counters": {
            "seen": context.seen,
            "updates": context.updates,
            "credit": learner.credit,
            "tasks": context.tasks,
            "spent": context.spent.state_dict(),
        },
    }


def restore(learner: Learner, state: dict[str, Any]) -> None:
    """See `Learner.load_state_dict`."""
    context, to_device = learner.context, learner.engine.to_device
    context.network.load_state_dict(state["network"])
    context.network.labels[:] = [label if label is None else plain_label(label) for label in state["labels"]]
    learner.trainer.load_optimizer_state(state["optimizer"])
    context.memory.load_state_dict(state["memory"])
    for name, shared in context.shared.items():
        shared.load_state_dict(state["shared"][name])
    for name, part in learner.parts.items():
        part.load_state_dict(state["parts"][name])
    images, labels = state["stream batch"]["images"], state["stream batch"]["labels"]
    learner.stream_batch = [
        Sample(to_device(i[None]), to_device(n[None]), int(n)) for i, n in zip(images, labels, strict=True)
    ]
    saved, counters = state["counters"], context.counters
    counters.seen, counters.updates, counters.tasks = saved["seen"], saved["updates"], saved["tasks"]
    context.spent.load_state_dict(saved["spent"])
    learner.credit, learner.prepared_at = saved["credit"], None
    learner.refitter.load_state_dict(state["refit"])
    learner.check_weights()


def snapshot(learner: Learner) -> list[Tensor]:
    """See `Learner.snapshot`."""
    readout, before = learner.method.readout, learner.prepared_at
    held = [values.clone() for values in readout.prepared().values()] if readout.prepare_every > 1 else []
    learner.prepare()
    made = [values.cpu().clone() for values in readout.answers_with()]
    if held:
        for values, old in zip(readout.prepared().values(), held, strict=True):
            values.copy_(old)
        learner.prepared_at = before
    return made
