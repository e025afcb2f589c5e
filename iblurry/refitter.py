"""The refitter: trains on the memory alone for some epochs; can be saved after any update and goes on from there."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from iblurry.engine.optimizer import restore, state_of
from iblurry.memory import Batch
from iblurry.network.build import fresh_row, initialise
from iblurry.network.network import Network
from iblurry.parts.compute_counter import ComputeCounter
from iblurry.parts.context import Context
from iblurry.rng import Rng
from iblurry.trainer import Trainer
from iblurry.training import Training

State = dict[str, Any]


class Refitter:
    """A trainer of its own on a bench of its own: the memory is shared; dice, counters and optimizer are not.

    A refit is a function of the seed, the moment of the stream and what the memory holds. While it is under way it is
    part of the learner's state; when it is done, all that counts is the network. The trainer is kept for the next refit
    of its kind, which starts it again: on a GPU the steps it has captured are worth more than the room they take.
    """

    def __init__(self, online: Trainer, training: Training | None, *, tell: Callable[[int, int], None]) -> None:
        self.online, self.training, self.tell = online, training, tell
        self.trainer: Trainer | None = None  # of the refit under way
        self._kept: dict[tuple[bool, bool], Trainer] = {}  # by fresh and frozen_norm
        self._began = -1  # samples seen when it began
        self._fresh = False
        self._saved: State | None = None  # of a refit that a checkpoint interrupted, until it is asked for again
        self._network: Network | None = None  # for fresh starts, used again and again

    def __call__(self, *, epochs: int, fresh: bool, frozen_norm: bool) -> Context:
        """Trains, or goes on training; the bench whose network has learnt the memory."""
        trainer = self._trainer(fresh, frozen_norm)
        context, size = trainer.context, trainer.context.memory.size
        batches = -(-size // trainer.training.rehearsal.joins(size)) if size else 0  # nothing stored, nothing learnt
        nothing = Batch(context.memory.images[:0], context.memory.labels[:0])
        while context.updates < epochs * batches:
            trainer.update(nothing, last_of_round=(context.updates + 1) % batches == 0)
            self.tell(context.updates, epochs * batches)
        self.trainer = None
        if not fresh:
            self.online.forget()  # what it remembers belongs to the network before the refit
        elif context.queries.is_new("refit", (context.memory.offered,)):
            context.queries.include(context.spent)
        return context

    def state_dict(self) -> State | None:
        """None where no refit is under way; one that the stream has left behind does not count."""
        seen = self.online.context.seen
        if self.trainer is None or self._began != seen:
            return self._saved if self._saved is not None and self._saved["seen"] == seen else None
        context = self.trainer.context
        return {
            "seen": seen,
            "updates": context.updates,
            "network": dict(context.network.state_dict()) if self._fresh else None,  # its own is saved by the learner
            "spent": context.spent.state_dict() if self._fresh else None,  # and so is what that one has spent
            "optimizer": state_of(self.trainer.optimizer),
            "parts": {place: part.state_dict() for place, part in self.trainer.parts.items()},
        }

    def load_state_dict(self, state: State | None) -> None:
        self.trainer, self._saved = None, copy.deepcopy(state)

    def _trainer(self, fresh: bool, frozen_norm: bool) -> Trainer:
        """That of the refit under way at this moment of the stream, or one at its start."""
        now = self.online.context.seen
        if self.trainer is not None and self._began == now:
            return self.trainer
        assert self.training is not None, "a method whose readout refits says how"
        rng = self.online.context.rng.fork(f"refit at {now}")
        network = self._fresh_network(rng) if fresh else self.online.context.network
        spent = ComputeCounter() if fresh else self.online.context.spent
        context = dataclasses.replace(self.online.context, network=network, rng=rng, updates=0, refit=None, spent=spent)
        trainer = self._kept.get((fresh, frozen_norm))
        if trainer is None:
            trainer = Trainer(self.training.attach(context), context, frozen_norm=frozen_norm)
            self._kept[fresh, frozen_norm] = trainer
        else:
            vars(trainer.context).update(vars(context))  # its parts and captured steps know that bench
            trainer.restart()
        if self._saved is not None and self._saved["seen"] == now:
            _put_back(trainer, self._saved)
        self.trainer, self._began, self._fresh, self._saved = trainer, now, fresh, None
        return trainer

    def _fresh_network(self, rng: Rng) -> Network:
        """Drawn anew in place, with a row open for each class met."""
        known = self.online.context.network
        if self._network is None:
            self._network = known.twin()
        network = self._network
        initialise(network.body, rng)
        network.close()
        for row, label in enumerate(known.labels):
            network.expose(label, *fresh_row(rng, row, network.features))
        return network


def _put_back(trainer: Trainer, saved: State) -> None:
    trainer.context.updates = saved["updates"]
    if saved["network"] is not None:
        trainer.context.network.load_state_dict(saved["network"])
        trainer.context.spent.load_state_dict(saved["spent"])
    restore(trainer.optimizer, saved["optimizer"])
    for place, part in trainer.parts.items():
        part.load_state_dict(saved["parts"][place])
