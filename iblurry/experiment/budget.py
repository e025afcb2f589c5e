"""What a run has spent and what its memory holds, as records of the journal."""

from __future__ import annotations

import torch

from iblurry.compute import PURPOSES, ComputeCounter
from iblurry.engine.eager import AsyncRead
from iblurry.experiment.journal import Held, Spent
from iblurry.learner.cost import bytes_held
from iblurry.learner.learner import Learner
from iblurry.network.flops import BACKWARD


class PendingHeld:
    """Rows of each class in the memory, counted on the device and read by the host once they are there."""

    def __init__(self, learner: Learner) -> None:
        memory = learner.context.memory
        counts = torch.zeros(len(learner.labels) + 1, dtype=torch.int64, device=memory.device)
        rows = counts.index_add_(0, memory.labels[:-1] + 1, torch.ones_like(memory.labels[:-1]))  # first: empty ones
        self.at, self._rows = learner.context.seen, AsyncRead(rows[1:])

    def ready(self) -> bool:
        """Whether `record` would return at once."""
        return self._rows.ready()

    def record(self) -> Held:
        """Wait for the counts."""
        return Held(self.at, tuple(self._rows.tolist()))


def spent(learner: Learner, flops: int, *, features: int) -> Spent:
    """All that was computed so far; nothing is waited for.

    Parameters
    ----------
    learner : Learner
        Who computed it.
    flops : int
        Floating-point operations of an image's forward pass; of the head alone where features are stored.
    features : int
        Those of a frozen body. What it computes of questions is counted as the queries'.
    """
    asked = learner.context.queries.forward["features"]
    total = ComputeCounter()
    total.include(learner.context.spent)
    total.include(learner.context.queries)
    forward, backward = total.forward, total.backward
    operations = {purpose: flops * (forward[purpose] + BACKWARD * backward[purpose]) for purpose in PURPOSES}
    operations["features"] = features * (forward["features"] - asked)
    operations["queries"] += features * asked
    return Spent(learner.context.seen, total.updates, forward, backward, operations, bytes_held(learner))
