"""Refit: answers come from a network trained on the memory alone, for many epochs."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, Self

from iblurry.components.lazy_torch import Tensor
from iblurry.compute import Cost, Passes, Workload
from iblurry.errors import InputError
from iblurry.parts.context import Context
from iblurry.parts.part import scratch, state
from iblurry.parts.readout.readout import Readout


class Refit(Readout):
    """A fresh network for each query (GDumb), or the learner's own at each task end (RM).

    `at="end"` is a fresh network too, but a run asks only when the stream has ended (joint training). How it is trained
    is the method's `refit`. A fresh network belongs to the query: learning goes on as if nobody had asked.

    Parameters
    ----------
    at : {"query", "boundary", "end"}
        When it is trained.
    epochs : int
        Passes over the memory.
    frozen_norm : bool
        Released RM on CIFAR and TinyImageNet: batch norm keeps the statistics of the stream, in training too.

    Prabhu et al., "GDumb: A simple approach that questions our progress in continual learning", ECCV 2020.
    Bang et al., "Rainbow memory: Continual learning with a memory of diverse samples", CVPR 2021.
    """

    refits: ClassVar[bool] = True
    ranges: ClassVar[dict[str, str]] = {"epochs": "[1, inf)"}

    at: Literal["query", "boundary", "end"] = "query"
    epochs: int = 256
    frozen_norm: bool = False

    due: bool = state(lambda part: False)  # a task ended and its refit is not done yet
    answering: Context = scratch(lambda part: part.context)  # whose network answers
    offered: int = scratch(lambda part: -1)  # samples the memory had been offered when that was trained

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frozen_norm and self.at != "boundary":
            raise InputError("Refit(frozen_norm=True): a fresh network has no statistics to keep; use at='boundary'.")

    def released(self) -> Self:
        return dataclasses.replace(self, frozen_norm=self.at == "boundary")

    @property
    def needs_boundaries(self) -> bool:
        return self.at == "boundary"

    @property
    def only_at_end(self) -> bool:
        return self.at == "end"

    def cost(self, workload: Workload) -> Cost:
        study = Passes(workload.capacity, workload.capacity) * self.epochs
        return Cost(task=study) if self.needs_boundaries else Cost(query=study)

    def on_boundary(self) -> None:
        self.due = self.needs_boundaries

    def finish_pending(self) -> None:
        if self.due:
            self._train(fresh=False)
            self.due = False

    def prepare(self) -> None:
        if not self.needs_boundaries and self.offered != self.context.memory.offered:
            self.answering = self._train(fresh=True)
            self.offered = self.context.memory.offered

    def logits(self, images: Tensor) -> Tensor:
        return self.answering.logits(images)

    def _train(self, *, fresh: bool) -> Context:
        assert self.context.refit is not None, "a method whose readout refits says how"
        return self.context.refit(epochs=self.epochs, fresh=fresh, frozen_norm=self.frozen_norm)
