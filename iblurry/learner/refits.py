"""Refits: networks that are trained on the memory alone, one after the other, or many at once on a GPU."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from iblurry.augment import Augment
from iblurry.augment.pipeline import AugmentParams, StackedParams
from iblurry.compute import ComputeCounter
from iblurry.engine.optimizer import SGD, Adam, AdamW
from iblurry.engine.optimizer_state import reset_state, set_lr
from iblurry.engine.stacked import StackedNetwork, can_stack
from iblurry.learner.trainer import Trainer
from iblurry.methods.method import Training
from iblurry.network.build import restart
from iblurry.parts import CrossEntropy, Shuffled
from iblurry.parts.context import Context, Counters, Update
from iblurry.parts.memory import Batch

MODELS = 33  # networks trained at once: 15 times for 495 queries. Results are those of this number: fewer are filled up
DRAWING = min(8, os.cpu_count() or 1)  # threads that draw initial weights
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
        if self.trainer is None or self.trainer.context.seen != seen:
            return self._saved if self._saved is not None and self._saved["seen"] == seen else None
        context = self.trainer.context
        is_fresh = context.network is not self.online.network
        return {
            "seen": seen,
            "updates": context.updates,
            "network": dict(context.network.state_dict()) if is_fresh else None,  # its own is saved by the learner
            "spent": context.spent.state_dict() if is_fresh else None,  # and so is what that one has spent
            "optimizer": self.trainer.optimizer_state(),
            "shared": {name: shared.state_dict() for name, shared in context.shared.items()},
            "parts": {name: part.state_dict() for name, part in self.trainer.parts.items()},
        }

    def load_state_dict(self, state: State | None) -> None:
        self.trainer, self._saved = None, copy.deepcopy(state)

    def _trainer(self, fresh: bool, frozen_norm: bool) -> Trainer:
        """The trainer of the refit under way at this moment of the stream, or one at its start."""
        online, now = self.online, self.online.seen
        if self.trainer is not None and self.trainer.context.seen == now:
            return self.trainer
        kept = self._kept.get((fresh, frozen_norm))
        context = self._new_context(fresh) if kept is None else kept.context
        context.rng.rescope(online.rng.fork(f"refit at {now}").scope)
        if fresh:
            restart(context.network, online.network.labels, context.rng)
            context.spent.load_state_dict(ComputeCounter().state_dict())
        counters = context.counters
        counters.seen, counters.updates, counters.tasks = now, 0, online.tasks
        if kept is None:
            assert self.training is not None, "a method whose readout refits says how"
            trainer = Trainer(self.training.attach(context), context, frozen_norm=frozen_norm)
            self._kept[fresh, frozen_norm] = trainer
        else:
            trainer = kept
            trainer.restart()
        if self._saved is not None and self._saved["seen"] == now:
            _restore(trainer, self._saved)
        self.trainer, self._saved = trainer, None
        return trainer

    def _new_context(self, fresh: bool) -> Context:
        return dataclasses.replace(
            self.online,
            network=self.online.network.twin() if fresh else self.online.network,
            rng=self.online.rng.fork(""),
            refit=None,
            counters=Counters(),
            spent=ComputeCounter() if fresh else self.online.spent,
            shared={},
        )


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


class MemorySnapshot(NamedTuple):
    """What a refit depends on: the memory at a moment of the stream, and the moment."""

    seen: int  # samples
    labels: tuple[str | int, ...]  # classes met
    images: Tensor  # (capacity, C, H, W) uint8
    rows: Tensor  # (capacity,) int64: the images' head rows

    @classmethod
    def take(cls, context: Context) -> MemorySnapshot:
        """Copies what a refit at this moment would depend on."""
        memory = context.memory
        return cls(context.seen, tuple(context.network.labels), memory.images[:-1].clone(), memory.labels[:-1].clone())


class RefitStack:
    """Trains a network from scratch on each of several snapshots of a full memory.

    Each network has the random numbers that it would have alone, and sees its own snapshot only. A stack that is not
    full is filled up with copies: what a network becomes does not depend on how many others are trained with it.

    Parameters
    ----------
    training : Training
        How to train; see `fits`.
    context : Context
        Of the learner.
    epochs : int
        Passes over the memory.
    on_progress : callable
        Called with the updates done and the updates in all, after each update.
    models : int, optional
        How many networks are trained at once; default MODELS.
    """

    def __init__(
        self,
        training: Training,
        context: Context,
        *,
        epochs: int,
        on_progress: Callable[[int, int], None],
        models: int | None = None,
    ) -> None:
        self.models = models = MODELS if models is None else models
        self.training, self.context, self.epochs = training, context, epochs
        self.on_progress = on_progress
        self.single = context.network.twin()  # takes each network in turn, to answer
        self._drawn = [context.network.twin().cpu() for _ in range(min(DRAWING, models))]  # take them to be drawn
        self.network = StackedNetwork(self.single, models)
        self.size = size = context.memory.capacity
        device = context.device
        self.images = torch.zeros(models * size, *context.memory.images.shape[1:], dtype=torch.uint8, device=device)
        self.labels = torch.zeros(models * size, dtype=torch.int64, device=device)
        self.first_rows = size * torch.arange(models, device=device)[:, None]  # where each snapshot begins
        self.loss = torch.zeros((), device=device)
        self.optimizer = training.optimizer.start([list(self.network.parameters())])
        if isinstance(self.optimizer, torch.optim.SGD):
            self.network.descend(self.optimizer)
        count = training.rehearsal.joins(size)
        for batch in {count, size % count or count}:
            context.expect_images(models * batch)
            self.network.prepare(self.single.body, (batch, *context.pipeline.shape))
        self._step = context.engine.compile(self._on_device)

    @staticmethod
    def fits(training: Training | None, context: Context) -> bool:
        """Whether refits of this kind can be stacked here: a ResNet by own kernels, plain cross-entropy, whole epochs
        of a full memory, and an optimizer that treats each weight by itself.

        The moment when the memory becomes full is left out: 495 of CIFAR-10's 500 queries come after it, which are
        whole stacks; one more would be a stack for itself.
        """
        memory = context.memory
        if training is None or not memory.full or memory.offered <= memory.capacity or not can_stack(context.network):
            return False
        network, count = context.network, training.rehearsal.joins(memory.capacity)
        return (
            network.has_kernels
            and not network.keeps_weights
            and type(context.pipeline.augment) is Augment
            and type(training.rehearsal) is Shuffled
            and [type(term) for term in training.terms] == [CrossEntropy]
            and not training.gradient
            and training.schedule.lr_scale is None
            and not training.schedule.separate_head_lr
            and type(training.optimizer) in (Adam, AdamW, SGD)
            and count % 4 == 0
            and memory.capacity % 4 == 0
        )

    @property
    def cost(self) -> ComputeCounter:
        """What one refit spends."""
        cost = ComputeCounter()
        cost.updates = self.epochs * self._batches
        cost.forward["training"] = cost.backward["training"] = self.epochs * self.size
        return cost

    @property
    def _batches(self) -> int:
        return -(-self.size // self.training.rehearsal.joins(self.size))

    def train(self, snapshots: Sequence[MemorySnapshot]) -> None:
        """Trains a network on each; `logits` then answers by any of them."""
        assert 0 < len(snapshots) <= self.models
        snapshots = [*snapshots, *([snapshots[-1]] * (self.models - len(snapshots)))]
        students = [_Student(self.training, self.context, snapshot.seen) for snapshot in snapshots]
        for model, snapshot in enumerate(snapshots):
            place = slice(model * self.size, (model + 1) * self.size)
            self.images[place], self.labels[place] = snapshot.images, snapshot.rows
        self._draw_networks(snapshots, students)
        reset_state(self.optimizer, self.training.optimizer, list(self.network.parameters()))
        schedule = self.training.schedule.attach(students[0].context)
        total, batches = self.epochs * self._batches, self._batches
        rows: Sequence[Tensor] = []
        lr: float | None = None  # that the optimizer has
        for step in range(total):
            if step % batches == 0:
                rows = self._draw_epoch(students, step)
            batch = rows[step % batches]
            params = StackedParams.stack([student.draw_params(step, batch.shape[1]) for student in students])
            if schedule.lr != lr:
                lr = schedule.lr
                for group in self.optimizer.param_groups:
                    set_lr(group, lr)
            self._step(batch, params)
            schedule.step(Update(batch, None, last_of_round=(step + 1) % batches == 0))
            self.on_progress(step + 1, total)

    def _draw_networks(self, snapshots: Sequence[MemorySnapshot], students: Sequence[_Student]) -> None:
        """Initial weights by several threads: drawn one after the other they would take a twentieth of the run."""
        labels, rngs = [snapshot.labels for snapshot in snapshots], [student.context.rng for student in students]
        with ThreadPoolExecutor(len(self._drawn)) as pool:
            for first in range(0, self.models, len(self._drawn)):
                some = slice(first, first + len(self._drawn))
                for _ in pool.map(restart, self._drawn, labels[some], rngs[some]):
                    pass  # raises what a thread raised
                for model, drawn in zip(range(self.models)[some], self._drawn, strict=False):
                    self.network.put(model, drawn)
        self.network.restart()

    def _draw_epoch(self, students: Sequence[_Student], step: int) -> Sequence[Tensor]:
        """The rows of each batch of an epoch, (models, B) of `images`."""
        batches = [[student.draw_rows(step + i, self.size) for student in students] for i in range(self._batches)]
        drawn = self.context.engine.to_device(torch.cat([torch.tensor(rows) for rows in batches], 1))
        split: Sequence[Tensor] = (drawn + self.first_rows).split([len(rows[0]) for rows in batches], 1)
        return split

    def _on_device(self, rows: Tensor, params: StackedParams) -> None:
        """One update of every network. Tensors only, so it can run as a captured graph."""
        drawn, joined = rows.flatten(), params.joined()
        labels = self.labels.index_select(0, drawn)
        images = self.context.pipeline.train(self.images.index_select(0, drawn), joined)
        logits = self.network(images).flatten(0, 1)
        own = F.cross_entropy(logits, labels, reduction="none").view_as(rows).mean(1)
        partners = labels.index_select(0, joined.partner)
        mixed = F.cross_entropy(logits, partners, reduction="none").view_as(rows).mean(1)
        loss = torch.lerp(mixed, own, joined.lam[:, 0]).sum()  # each network's gradient is that of its own loss
        self.optimizer.zero_grad()
        with self.network.convolutions.parallel_backward():
            loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            self.loss.copy_(loss)

    def logits(self, model: int, images: Tensor) -> Tensor:
        """The answer of one of the networks to plain images (uint8)."""
        self.network.get(model, self.single)
        return self.context.logits(images, self.single)


class _Student:
    """The random numbers of one refit: those that it has alone."""

    def __init__(self, training: Training, online: Context, seen: int) -> None:
        self.context = dataclasses.replace(online, rng=online.rng.fork(f"refit at {seen}"), refit=None, shared={})
        self.pipeline = online.pipeline.twin()
        self.rehearsal = training.rehearsal.attach(self.context)

    def draw_rows(self, step: int, size: int) -> Sequence[int]:
        return self.rehearsal.draw_rows("rehearsal draws", step, size)

    def draw_params(self, step: int, n: int) -> AugmentParams:
        return self.pipeline.draw_params(self.context.rng, step, n)
