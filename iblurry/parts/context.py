"""The workbench: what parts share. They never hold each other; they meet here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from iblurry.augment.pipeline import AugmentParams, Pipeline
from iblurry.engine.eager import Eager
from iblurry.memory import Memory
from iblurry.network.network import Network
from iblurry.parts.compute_counter import ComputeCounter, Queries
from iblurry.parts.cost import Load
from iblurry.rng import Rng

VALUES = 2**17  # of the images in one forward pass outside training: 64 of 3x32x32; more at a time are slower on a CPU
POINTS = 2**21  # of such images on a GPU, channels not counted: 2,048 of 32x32


class Forward(NamedTuple):
    """One training forward pass, as the terms of the loss see it."""

    images: Tensor  # (B, C, H, W) float, augmented and mixed; the streamed samples first
    logits: Tensor  # (B, rows)
    labels: Tensor  # (B,) own labels
    partners: Tensor | None  # (B,) the labels mixed in; None where the host knows that nothing was mixed
    lam: Tensor  # (1,) share of the own label


class Drawn(NamedTuple):
    """What the host drew for one part and one update."""

    rows: Tensor  # memory rows, all different
    augment_params: AugmentParams | None  # dice to vary them and the streamed samples, for a part that `varies`


class Update(NamedTuple):
    """One update that has just been taken."""

    rows: Tensor  # memory rows that were in the batch
    losses: Tensor | None  # (capacity,) loss of every memory row after it, where it was measured; empty rows are 0
    last_of_round: bool = False  # told to the schedule, which lives on the host


class Refitting(Protocol):
    """Trains on the memory alone, a fresh network or the learner's own; returns the bench with that network."""

    def __call__(self, *, epochs: int, fresh: bool, frozen_norm: bool) -> Context: ...


@dataclass
class Context:
    """The network, the memory, the dice and the counters of one learner."""

    network: Network
    memory: Memory
    pipeline: Pipeline
    rng: Rng
    budget: int  # samples to be shared between the memory and what parts hold
    engine: Eager = field(default_factory=Eager)  # what steps run on
    correct: Callable[[Tensor], Tensor] = lambda logits: logits  # as the readout did at the end of the last task
    refit: Refitting | None = None  # where the method says how
    seen: int = 0  # samples met
    updates: int = 0  # optimizer steps taken
    tasks: int = 0  # that ended
    spent: ComputeCounter = field(default_factory=ComputeCounter)  # on learning
    queries: Queries = field(default_factory=Queries)  # what answers cost
    lr: float | Tensor = 0.0  # the learning rate of this update; on a GPU where a captured update finds it

    def load(self, streamed: int, batch: int) -> Load:
        """What decides what parts spend now."""
        rows, classes = self.memory.size, self.network.known
        return Load(
            streamed=streamed, batch=batch, capacity=rows, budget=self.budget, classes=classes, tasks=self.tasks
        )

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """What the network answers to plain images (uint8), in eval mode; nothing is changed by asking."""
        few = min(512, max(64, VALUES // math.prod(images.shape[1:])))
        chunk = max(64, POINTS // math.prod(images.shape[2:])) if images.is_cuda else few
        with self.engine.side_stream():
            answer = self.network.answering(self.pipeline.test)
            parts = [answer(part) for part in images.split(chunk)]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

    def gradient(self, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """The gradient of the mean cross-entropy of these images (float), by parameter; the network's mode is kept."""
        with torch.enable_grad():
            loss = F.cross_entropy(self.network(images), labels)
            return torch.autograd.grad(loss, tuple(self.network.parameters()))

    def losses(self, images: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of each plain image, (B,)."""
        return F.cross_entropy(self.logits(images), labels, reduction="none")

    def memory_losses(self) -> Tensor:
        """The loss of every memory row, (capacity,) float64; rows never written are 0."""
        if self.memory.device.type == "cuda":  # of one shape always: it can be captured before the memory is full
            losses = self.losses(self.memory.images[:-1], self.memory.labels[:-1].clamp(min=0)).double()
            return losses * self.memory.filled()
        size = self.memory.size
        losses = self.losses(self.memory.images[:size], self.memory.labels[:size]).double()
        return F.pad(losses, (0, self.memory.capacity - size))
