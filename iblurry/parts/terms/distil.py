"""Distil: what the network answered before, it should answer still."""

from __future__ import annotations

import copy
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from iblurry.errors import InputError
from iblurry.network.network import FLOOR
from iblurry.parts.context import Forward
from iblurry.parts.cost import Cost, Load, Passes
from iblurry.parts.part import Part, state
from iblurry.parts.terms.term import Term


def _snapshot(part: Part) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in part.context.network.state_dict().items()}


class Distil(Term):
    """BiC's distillation: -sum softmax(old / T) log softmax(new / T) over the classes the teacher knew, batch mean.

    The teacher is the network as it was at the last new class or task end, corrected as the readout was at the last
    task end; it teaches from the second task on and sees the mixed images.

    Differs: added as it is, without BiC's weight for the share of old classes and without T^2; as released. The teacher
    always answers in eval mode; in the released program its mode depends on when it was copied.

    Wu et al., "Large scale incremental learning", CVPR 2019; Hinton et al., 2015.
    """

    needs_boundaries: ClassVar[bool] = True
    purpose: ClassVar[str] = "distillation"
    stores: ClassVar[str] = "a copy of the network as a teacher"

    temperature: float = 2.0
    correct_mixed: bool = True  # released: a teacher is not corrected on mixed batches

    teacher: dict[str, Tensor] = state(_snapshot)
    teaches: bool = state(lambda part: False)

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise InputError(f"Distil(temperature={self.temperature}): the temperature is positive.")

    def released(self) -> Self:
        changed = copy.copy(self)
        changed.correct_mixed = False
        return changed

    def cost(self, load: Load) -> Cost:
        return Cost(update=Passes(forward=load.batch)) if load.tasks else Cost()  # the teacher's

    @property
    def graph_key(self) -> bool:
        return self.teaches

    def loss(self, forward: Forward) -> Tensor:
        if not self.teaches:  # known to the host: it is the first task
            return forward.logits.new_zeros(())
        network = self.context.network
        network.eval()
        with torch.no_grad():
            old = functional_call(network, self.teacher, (forward.images,))
            if self.correct_mixed or forward.partners is None:
                old = self.context.correct(old)
        network.train()
        return distillation(old, forward.logits.masked_fill(~self.teacher["open"], FLOOR), self.temperature)

    def on_class(self, label: int) -> None:
        self._copy()

    def on_boundary(self) -> None:
        self._copy()
        self.teaches = True

    def _copy(self) -> None:
        for name, value in self.context.network.state_dict().items():
            self.teacher[name].copy_(value)


def distillation(old: Tensor, new: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of softened answers, (B, classes) each; a class at the floor in both adds nothing."""
    return -((old / temperature).softmax(1) * F.log_softmax(new / temperature, dim=1)).sum(1).mean()
