"""Interfered: the rows that the coming update would hurt most."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from iblurry.errors import InputError
from iblurry.memory import Batch
from iblurry.parts.context import Drawn
from iblurry.parts.cost import Cost, Load, Passes
from iblurry.parts.rehearsal.rehearsal import Rehearsal


class Interfered(Rehearsal):
    """Of `candidates` rows drawn at random, the `count` whose loss a virtual step on the streamed samples raises most.

    theta' = theta - rate * g(stream), a plain gradient step; score = loss(row; theta') - loss(row; theta).

    Differs: all passes are in train mode, so batch norm uses the batch and its running statistics move; as released.

    Aljundi et al., "Online continual learning with maximally interfered retrieval", NeurIPS 2019.
    """

    needs_augment_params: ClassVar[bool] = True

    count: int = 8
    candidates: int = 50

    def __post_init__(self) -> None:
        if not 1 <= self.count <= self.candidates:
            raise InputError(f"{self}: count is at least 1 and at most the candidates.")

    @property
    def rows_per_update(self) -> int:
        return self.candidates

    def joins(self, drawn: int) -> int:
        return min(self.count, drawn)

    def cost(self, load: Load) -> Cost:
        if not load.streamed or not load.capacity:
            return Cost()
        candidates = min(self.candidates, load.capacity)
        return Cost(update=Passes(forward=load.streamed + 2 * candidates, backward=load.streamed))

    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        if not len(drawn.rows) or not len(stream.labels):  # known to the host: nothing stored, or nothing streamed
            return drawn.rows[: self.count]
        context, network = self.context, self.context.network
        assert drawn.augment_params is not None
        network.train()
        gradient = context.gradient(context.pipeline.vary(stream.images, drawn.augment_params), stream.labels)
        with torch.no_grad():
            moved = {
                name: p - context.lr * g for (name, p), g in zip(network.named_parameters(), gradient, strict=True)
            }
            batch = context.memory.read(drawn.rows)
            images = context.pipeline.test(batch.images)
            before = F.cross_entropy(network(images), batch.labels, reduction="none")
            after = F.cross_entropy(functional_call(network, moved, (images,)), batch.labels, reduction="none")
            return drawn.rows.index_select(0, hurt_most(before, after, self.joins(len(drawn.rows))))


def hurt_most(before: Tensor, after: Tensor, count: int) -> Tensor:
    """Positions of the largest rises, largest first."""
    return (after - before).topk(count).indices
