"""Gradient: what is done to the gradient before the step? Clipping, and A-GEM's projection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from iblurry.components.lazy_torch import Tensor, nn, torch
from iblurry.compute import Cost, Passes, Workload
from iblurry.parts.context import Drawn
from iblurry.parts.part import Part, scratch


class GradientRule(Part):
    """Changes the gradients of the network in place."""

    kind: ClassVar[str] = "gradient"
    overlaps_forward: ClassVar[bool] = False  # whether `prepare` changes nothing that a training pass reads or changes

    def prepare(self, drawn: Drawn) -> None:
        """Computes what does not need the gradient, such as a reference; on a GPU at the same time as that.

        Nothing unless overridden; what it finds is kept for `adjust`, which gets the same rows. Where
        `overlaps_forward`, it may begin before the forward pass has ended.
        """

    @abstractmethod
    def adjust(self, drawn: Drawn) -> None:
        """Works on `parameter.grad`; `drawn` holds the `rows_per_update` memory rows the host drew for it."""


class Clip(GradientRule):
    """g <- g * min(1, norm / |g|), over all parameters together.

    Parameters
    ----------
    norm : float
        The largest L2 norm; 10 as in BiC and RM.

    Pascanu et al., "On the difficulty of training recurrent neural networks", ICML 2013.
    """

    ranges: ClassVar[dict[str, str]] = {"norm": "(0, inf)"}

    norm: float = 10.0

    def adjust(self, drawn: Drawn) -> None:
        nn.utils.clip_grad_norm_(self.context.network.parameters(), self.norm)


class Project(GradientRule):
    """A-GEM: with r the gradient on `count` memory rows, g <- g - min(0, g.r) / (r.r) * r, over all parameters.

    Parameters
    ----------
    count : int
        Memory rows of the reference gradient.

    Notes
    -----
    Differs: no task identities; the constraint holds from the first memory content on. Rows are augmented, not mixed.
    Differs: the reference pass is in train mode, as in public implementations of A-GEM: batch norm uses the reference
    batch, and its running statistics move as they do in the training pass.

    Chaudhry et al., "Efficient lifelong learning with A-GEM", ICLR 2019.
    """

    ranges: ClassVar[dict[str, str]] = {"count": "[1, inf)"}
    needs_augment_params: ClassVar[bool] = True
    overlaps_forward: ClassVar[bool] = True

    count: int = 240

    reference: tuple[Tensor, ...] = scratch(lambda part: ())  # r by weight, from `prepare` to `adjust`
    move_statistics: Callable[[], None] = scratch(lambda part: lambda: None)  # by those of the reference rows, likewise
    project: Callable[..., None] = scratch(lambda part: part.context.engine.fuse(project))

    @property
    def rows_per_update(self) -> int:
        return self.count

    def cost(self, workload: Workload) -> Cost:
        rows = min(self.count, workload.capacity)
        return Cost(update=Passes(rows, rows))

    def prepare(self, drawn: Drawn) -> None:
        if not len(drawn.rows):  # nothing stored yet, as the host knows
            return
        context = self.context
        assert drawn.augment_params is not None
        if len(drawn.rows) == self.count:
            context.expect_batch_size(self.count)
        batch = context.memory.read(drawn.rows)
        images = context.pipeline.vary(batch.images, drawn.augment_params)
        with context.network.apart_statistics() as self.move_statistics:
            self.reference = context.gradient(images, batch.labels)

    def adjust(self, drawn: Drawn) -> None:
        if not len(drawn.rows):
            return
        pairs = zip(self.context.network.trainable().values(), self.reference, strict=True)
        used = [(p.grad, slope) for p, slope in pairs if p.grad is not None]  # a body may have weights it never uses
        self.reference = ()
        with torch.no_grad():
            self.move_statistics()
            self.project([gradient for gradient, _ in used], [slope for _, slope in used])


def project(gradients: Sequence[Tensor], reference: Sequence[Tensor]) -> None:
    """Removes from the gradients, in place, what points against the reference."""
    dot = torch.stack([(g * r).sum() for g, r in zip(gradients, reference, strict=True)]).sum()
    length = torch.stack([r.square().sum() for r in reference]).sum()
    share = dot.clamp(max=0) / length.clamp(min=torch.finfo(length.dtype).tiny)
    for g, r in zip(gradients, reference, strict=True):
        g -= share * r
