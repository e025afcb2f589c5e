"""Distil: keeps the answers close to those of an earlier copy of the network (BiC)."""

from __future__ import annotations

from typing import Any, ClassVar

from iblurry.components.lazy_torch import F, Tensor
from iblurry.compute import Cost, Passes, Workload
from iblurry.network import FLOOR
from iblurry.network.shadow import ShadowNetwork
from iblurry.parts.context import Forward, SharedTensor, corrected
from iblurry.parts.part import scratch, state
from iblurry.parts.terms.term import Term


class Distil(Term):
    """BiC's distillation: -sum softmax(old / T) log softmax(new / T) over the classes the teacher knew, batch mean.

    Parameters
    ----------
    temperature : float
        T.
    correct_mixed : bool
        Whether the teacher's answers to mixed batches are corrected, too; released: no.

    Notes
    -----
    The teacher is the network as it was at the last new class or task end, corrected as the readout was at the last
    task end; it teaches from the second task on and sees the mixed images.

    Differs: added as it is, without BiC's weight for the share of old classes and without T^2; as released. The teacher
    always answers in eval mode; in the released program its mode depends on when it was copied.

    Wu et al., "Large scale incremental learning", CVPR 2019; Hinton et al., 2015.
    """

    ranges: ClassVar[dict[str, str]] = {"temperature": "(0, inf)"}
    needs_boundaries: ClassVar[bool] = True
    stores: ClassVar[str] = "a copy of the network as a teacher"
    released_fields: ClassVar[dict[str, Any]] = {"correct_mixed": False}

    temperature: float = 2.0
    correct_mixed: bool = True

    teaches: bool = state(lambda part: False)
    teacher: ShadowNetwork = scratch(lambda part: part.context.shadow("teacher", opens_rows=False))
    correction: SharedTensor = scratch(lambda part: part.context.correction)

    def cost(self, workload: Workload) -> Cost:
        return Cost(update=Passes(forward=workload.batch)) if workload.tasks else Cost()  # the teacher's

    @property
    def graph_key(self) -> bool:
        return self.teaches

    def prepare(self, images: Tensor, plain: Tensor | None) -> Tensor | None:
        """The teacher's answers."""
        return self.teacher.logits(images) if self.teaches else None  # known to the host: it is not the first task

    def loss(self, forward: Forward) -> Tensor:
        old = forward.prepared
        if old is None:
            return forward.logits.new_zeros(())
        if self.correct_mixed or forward.partners is None:
            old = corrected(old, self.correction.value)
        return distillation(old, forward.logits.masked_fill(~self.teacher.network.open, FLOOR), self.temperature)

    def on_class(self, label: int) -> None:
        self.teacher.copy_()

    def on_boundary(self) -> None:
        self.teacher.copy_()
        self.teaches = True


def distillation(old: Tensor, new: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of softened answers, (B, classes) each; a class at the floor in both adds nothing."""
    return -((old / temperature).softmax(1) * F.log_softmax(new / temperature, dim=1)).sum(1).mean()
