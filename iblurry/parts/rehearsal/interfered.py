"""Interfered: rehearses the rows whose loss the coming update would raise most (MIR)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from iblurry.compute import Cost, Passes, Workload
from iblurry.errors import check_fields
from iblurry.memory import Batch
from iblurry.parts.context import Drawn
from iblurry.parts.rehearsal.rehearsal import Rehearsal


class Interfered(Rehearsal):
    """Of `candidates` rows drawn at random, the `count` whose loss a virtual step on the streamed samples raises most.

    Parameters
    ----------
    count : int
        Rows that join a batch.
    candidates : int
        Rows that are scored for each update.

    Notes
    -----
    theta' = theta - lr * g(stream), a plain gradient step on the images of the update before they are mixed;
    score = loss(row; theta') - loss(row; theta), of plain images.

    Differs: all passes are in train mode, so batch norm uses the batch, and its running statistics move in the passes
    of the network itself (stream, and candidates before the virtual step); those of the virtual network are dropped.
    As released.

    Aljundi et al., "Online continual learning with maximally interfered retrieval", NeurIPS 2019.
    """

    count: int = 8  # type: ignore[misc]
    candidates: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, {"count": f"[1, {self.candidates}]"})

    @property
    def rows_per_update(self) -> int:
        return self.candidates

    def cost(self, workload: Workload) -> Cost:
        if not workload.streamed or not workload.capacity:
            return Cost()
        candidates = min(self.candidates, workload.capacity)
        return Cost(update=Passes(forward=workload.streamed + 2 * candidates, backward=workload.streamed))

    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        if not len(drawn.rows) or not len(stream.labels):  # known to the host: nothing stored, or nothing streamed
            return drawn.rows[: self.count]
        context, network = self.context, self.context.network
        assert drawn.augment_params is not None
        network.train()
        gradient = context.gradient(context.pipeline.vary(stream.images, drawn.augment_params), stream.labels)
        with torch.no_grad():
            batch = context.memory.read(drawn.rows)
            images = context.pipeline.test(batch.images)
            before = F.cross_entropy(network(images), batch.labels, reduction="none")
            virtual = {name: buffer.clone() for name, buffer in network.named_buffers()}
            for (name, weight), slope in zip(network.trainable().items(), gradient, strict=True):
                virtual[name] = weight - context.lr * slope
            after = F.cross_entropy(functional_call(network, virtual, (images,)), batch.labels, reduction="none")
            return drawn.rows.index_select(0, most_interfered(before, after, self.joins(len(drawn.rows))))


def most_interfered(before: Tensor, after: Tensor, count: int) -> Tensor:
    """Positions of the largest rises of the loss, largest first."""
    return (after - before).topk(count).indices
