"""The refitter: trains on the memory alone for some epochs; can be saved after any update and goes on from there."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from iblurry.course import Course
from iblurry.dice import Dice
from iblurry.engine.optimizer import restore, state_of
from iblurry.memory import Batch
from iblurry.network.build import fresh_row, initialise
from iblurry.network.network import Network
from iblurry.parts.tally import Tally
from iblurry.parts.workbench import Workbench
from iblurry.trainer import Trainer

State = dict[str, Any]


class Refitter:
    """A trainer of its own on a bench of its own: the memory is shared; dice, counters and optimizer are not.

    A refit is a function of the seed, the moment of the stream and what the memory holds. While it is under way it is
    part of the learner's state; when it is done, all that counts is the network. The trainer is kept for the next refit
    of its kind, which starts it again: on a GPU the steps it has captured are worth more than the room they take.
    """

    def __init__(self, online: Trainer, course: Course | None, *, tell: Callable[[int, int], None]) -> None:
        self.online, self.course, self.tell = online, course, tell
        self.trainer: Trainer | None = None  # of the refit under way
        self._kept: dict[tuple[bool, bool], Trainer] = {}  # by fresh and frozen_norm
        self._began = -1  # samples seen when it began
        self._fresh = False
        self._saved: State | None = None  # of a refit that a checkpoint interrupted, until it is asked for again
        self._network: Network | None = None  # for fresh starts, used again and again

    def __call__(self, *, epochs: int, fresh: bool, frozen_norm: bool) -> Workbench:
        """Trains, or goes on training; the bench whose network has learnt the memory."""
        trainer = self._trainer(fresh, frozen_norm)
        bench, size = trainer.bench, trainer.bench.memory.size
        batches = -(-size // trainer.course.rehearsal.joins(size)) if size else 0  # nothing stored, nothing learnt
        nothing = Batch(bench.memory.images[:0], bench.memory.labels[:0])
        while bench.updates < epochs * batches:
            trainer.update(nothing, last_of_round=(bench.updates + 1) % batches == 0)
            self.tell(bench.updates, epochs * batches)
        self.trainer = None
        if not fresh:
            self.online.forget()  # what it remembers belongs to the network before the refit
        elif bench.queries.is_new("refit", (bench.memory.offered,)):
            bench.queries.include(bench.spent)
        return bench

    def state_dict(self) -> State | None:
        """None where no refit is under way; one that the stream has left behind does not count."""
        seen = self.online.bench.seen
        if self.trainer is None or self._began != seen:
            return self._saved if self._saved is not None and self._saved["seen"] == seen else None
        bench = self.trainer.bench
        return {
            "seen": seen,
            "updates": bench.updates,
            "network": dict(bench.network.state_dict()) if self._fresh else None,  # its own is saved by the learner
            "spent": bench.spent.state_dict() if self._fresh else None,  # and so is what that one has spent
            "optimizer": state_of(self.trainer.optimizer),
            "parts": {place: part.state_dict() for place, part in self.trainer.parts.items()},
        }

    def load_state_dict(self, state: State | None) -> None:
        self.trainer, self._saved = None, copy.deepcopy(state)

    def _trainer(self, fresh: bool, frozen_norm: bool) -> Trainer:
        """That of the refit under way at this moment of the stream, or one at its start."""
        now = self.online.bench.seen
        if self.trainer is not None and self._began == now:
            return self.trainer
        assert self.course is not None, "a method whose readout refits says how"
        dice = self.online.bench.dice.scoped(f"refit at {now}")
        network = self._fresh_network(dice) if fresh else self.online.bench.network
        spent = Tally() if fresh else self.online.bench.spent
        bench = dataclasses.replace(self.online.bench, network=network, dice=dice, updates=0, refit=None, spent=spent)
        trainer = self._kept.get((fresh, frozen_norm))
        if trainer is None:
            trainer = Trainer(self.course.attach(bench), bench, frozen_norm=frozen_norm)
            self._kept[fresh, frozen_norm] = trainer
        else:
            vars(trainer.bench).update(vars(bench))  # its parts and captured steps know that bench
            trainer.restart()
        if self._saved is not None and self._saved["seen"] == now:
            _put_back(trainer, self._saved)
        self.trainer, self._began, self._fresh, self._saved = trainer, now, fresh, None
        return trainer

    def _fresh_network(self, dice: Dice) -> Network:
        """Drawn anew in place, with a row open for each class met."""
        known = self.online.bench.network
        if self._network is None:
            self._network = known.twin()
        network = self._network
        initialise(network.body, dice)
        network.close()
        for row, label in enumerate(known.labels):
            network.expose(label, *fresh_row(dice, row, network.features))
        return network


def _put_back(trainer: Trainer, saved: State) -> None:
    trainer.bench.updates = saved["updates"]
    if saved["network"] is not None:
        trainer.bench.network.load_state_dict(saved["network"])
        trainer.bench.spent.load_state_dict(saved["spent"])
    restore(trainer.optimizer, saved["optimizer"])
    for place, part in trainer.parts.items():
        part.load_state_dict(saved["parts"][place])
