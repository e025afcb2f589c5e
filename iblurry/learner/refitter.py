"""The refitter: trains on the memory alone for some epochs; can be saved after any update and continues from there."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from iblurry.compute import ComputeCounter
from iblurry.learner.trainer import Trainer
from iblurry.methods.method import Training
from iblurry.network.build import restart
from iblurry.parts.context import Context, Counters
from iblurry.parts.memory import Batch

State = dict[str, Any]


class Refitter:
    """A trainer of its own with a context of its own: the memory is shared; rng, counters and optimizer are not.

    A refit is a function of the seed, the moment of the stream and what the memory holds. While it is under way it is
    part of the learner's state; when it is done, all that counts is the network. The trainer is kept for the next refit
    of its kind, which restarts it: on a GPU the steps it has captured are worth more than the memory they take.

    Parameters
    ----------
    training : Training, optional
        How to train, where the method says so.
    online : Context
        Of the learner.
    on_progress : callable
        Called with the updates done and the updates in all, after each update.
    on_changed : callable
        Called when the learner's own network was trained: its optimizer's state belongs to the network before.
    """

    def __init__(
        self,
        training: Training | None,
        online: Context,
        *,
        on_progress: Callable[[int, int], None],
        on_changed: Callable[[], None],
    ) -> None:
        self.training, self.online, self.on_progress, self.on_changed = training, online, on_progress, on_changed
        self.trainer: Trainer | None = None  # of the refit under way
        self._kept: dict[tuple[bool, bool], Trainer] = {}  # by fresh and frozen_norm
        self._began = -1  # samples seen when it began
        self._fresh = False
        self._saved: State | None = None  # of a refit that a checkpoint interrupted, until it is asked for again

    def __call__(self, *, epochs: int, fresh: bool, frozen_norm: bool) -> Context:
        """Trains, or continues to; returns the context whose network has learnt the memory."""
        trainer = self._trainer(fresh, frozen_norm)
        context, size = trainer.context, trainer.context.memory.size
        batches = -(-size // trainer.training.rehearsal.joins(size)) if size else 0  # nothing stored, nothing learnt
        nothing = Batch(context.memory.images[:0], context.memory.labels[:0])
        with context.network.meter.counting("parts", into=context.spent):
            while context.updates < epochs * batches:
                trainer.update(nothing, last_of_round=(context.updates + 1) % batches == 0)
                self.on_progress(context.updates, epochs * batches)
        self.trainer = None
        if not fresh:
            self.on_changed()
        elif context.queries.first_time("refit", (context.memory.offered,)):
            context.queries.include(context.spent)
        return context

    def state_dict(self) -> State | None:
        """None where no refit is under way; one that the stream has left behind does not count."""
        seen = self.online.seen
        if self.trainer is None or self._began != seen:
            return self._saved if self._saved is not None and self._saved["seen"] == seen else None
        context = self.trainer.context
        return {
            "seen": seen,
            "updates": context.updates,
            "network": dict(context.network.state_dict()) if self._fresh else None,  # its own is saved by the learner
            "spent": context.spent.state_dict() if self._fresh else None,  # and so is what that one has spent
            "optimizer": self.trainer.optimizer_state(),
            "shared": {name: shared.state_dict() for name, shared in context.shared.items()},
            "parts": {name: part.state_dict() for name, part in self.trainer.parts.items()},
        }

    def load_state_dict(self, state: State | None) -> None:
        self.trainer, self._saved = None, copy.deepcopy(state)

    def _trainer(self, fresh: bool, frozen_norm: bool) -> Trainer:
        """The trainer of the refit under way at this moment of the stream, or one at its start."""
        now = self.online.seen
        if self.trainer is not None and self._began == now:
            return self.trainer
        scope = f"refit at {now}"
        trainer = self._kept.get((fresh, frozen_norm))
        if trainer is None:
            trainer = self._kept[fresh, frozen_norm] = self._new_trainer(scope, fresh, frozen_norm)
        else:
            context = trainer.context
            context.rng.rescope(self.online.rng.fork(scope).scope)
            if fresh:
                restart(context.network, self.online.network.labels, context.rng)
                context.spent.load_state_dict(ComputeCounter().state_dict())
            counters = context.counters
            counters.seen, counters.updates, counters.tasks = now, 0, self.online.tasks
            trainer.restart()
        if self._saved is not None and self._saved["seen"] == now:
            _restore(trainer, self._saved)
        self.trainer, self._began, self._fresh, self._saved = trainer, now, fresh, None
        return trainer

    def _new_trainer(self, scope: str, fresh: bool, frozen_norm: bool) -> Trainer:
        assert self.training is not None, "a method whose readout refits says how"
        online = self.online
        rng = online.rng.fork(scope)
        network = online.network
        if fresh:
            network = network.twin()
            restart(network, online.network.labels, rng)
        context = dataclasses.replace(
            online,
            network=network,
            rng=rng,
            refit=None,
            counters=Counters(seen=online.seen, tasks=online.tasks),
            spent=ComputeCounter() if fresh else online.spent,
            shared={},
        )
        return Trainer(self.training.attach(context), context, frozen_norm=frozen_norm)


def _restore(trainer: Trainer, saved: State) -> None:
    context = trainer.context
    context.counters.updates = saved["updates"]
    if saved["network"] is not None:
        context.network.load_state_dict(saved["network"])
        context.spent.load_state_dict(saved["spent"])
    trainer.load_optimizer_state(saved["optimizer"])
    for name, shared in context.shared.items():
        shared.load_state_dict(saved["shared"][name])
    for name, part in trainer.parts.items():
        part.load_state_dict(saved["parts"][name])
