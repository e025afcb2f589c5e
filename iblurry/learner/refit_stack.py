"""Refits of several moments of the stream at once: fresh networks that are trained in step, update by update."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from iblurry.augment import Augment
from iblurry.augment.pipeline import AugmentParams, StackedParams
from iblurry.compute import ComputeCounter
from iblurry.engine.fused import kernels
from iblurry.engine.optimizer import SGD, Adam, AdamW
from iblurry.engine.optimizer_state import reset_state, set_lr
from iblurry.engine.stacked import StackedNetwork, can_stack
from iblurry.methods.method import Training
from iblurry.network.build import restart
from iblurry.parts import CrossEntropy, Shuffled
from iblurry.parts.context import Context, Update

MODELS = 33  # networks trained at once: 15 times for 495 queries. Results are those of this number: fewer are filled up
DRAWING = min(8, os.cpu_count() or 1)  # threads that draw initial weights


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
            kernels(context.device) is not None
            and network.has_kernels
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
