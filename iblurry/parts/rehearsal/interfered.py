"""Interfered: rehearses the rows whose loss the coming update would raise most (MIR)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from iblurry.components.lazy_torch import F, Tensor, torch
from iblurry.compute import Cost, Passes, Workload
from iblurry.engine.optimizer import SGD
from iblurry.errors import check_fields
from iblurry.parts.context import Drawn
from iblurry.parts.memory import Batch
from iblurry.parts.part import scratch
from iblurry.parts.rehearsal.rehearsal import Rehearsal

if TYPE_CHECKING:
    from iblurry.network.network import Network


class Interfered(Rehearsal):
    """Draws `candidates` rows at random and takes the `count` whose loss a virtual step on the streamed samples
    raises most.

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

    stores: ClassVar[str] = "a copy of the network, for virtual steps"

    count: int = 8  # type: ignore[misc]
    candidates: int = 50

    virtual: Network = scratch(lambda part: part.context.network.twin())
    step: Callable[..., None] = scratch(lambda part: make_step(part.virtual))

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
        context, network, virtual = self.context, self.context.network, self.virtual
        assert drawn.augment_params is not None
        context.expect_batch_size(len(stream.labels))
        if len(drawn.rows) == self.candidates:
            for passed in (network, virtual):
                context.expect_batch_size(self.candidates, passed)
        network.train()
        batch = context.memory.read(drawn.rows)
        images = context.pipeline.test(batch.images)
        varied = context.pipeline.vary(stream.images, drawn.augment_params)
        with network.constant():
            with torch.enable_grad():
                loss = F.cross_entropy(network(varied), stream.labels)
            gradient, (before,) = context.engine.side_by_side(  # inside: it reads what `constant` holds
                lambda: context.gradient_of(loss), [lambda: self._losses_before(images, batch.labels)]
            )
        with torch.no_grad():
            self.step(gradient, context.lr)
            after = F.cross_entropy(virtual.train()(images), batch.labels, reduction="none")
            return drawn.rows.index_select(0, most_interfered(before, after, self.joins(len(drawn.rows))))

    def _losses_before(self, images: Tensor, labels: Tensor) -> Tensor:
        """Losses before the virtual step, which begins at the network's weights."""
        with torch.no_grad():
            self.virtual.copy_(self.context.network)
            return F.cross_entropy(self.context.network(images), labels, reduction="none")


def make_step(network: Network) -> Callable[[Sequence[Tensor], float | Tensor], None]:
    """What takes a plain step along a gradient, given with its learning rate."""
    optimizer = SGD(momentum=0, nesterov=False, weight_decay=0).start([[*network.trainable().values()]])
    (group,) = optimizer.param_groups

    def step(gradient: Sequence[Tensor], lr: float | Tensor) -> None:
        group["lr"] = lr
        for p, slope in zip(group["params"], gradient, strict=True):
            p.grad = slope if slope.stride() == p.stride() else torch.empty_like(p).copy_(slope)
        optimizer.step()
        optimizer.zero_grad()

    return step


def most_interfered(before: Tensor, after: Tensor, count: int) -> Tensor:
    """Positions of the largest rises of the loss, largest first."""
    return (after - before).topk(count).indices
