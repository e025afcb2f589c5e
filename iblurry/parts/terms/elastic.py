"""Elastic: a quadratic penalty on moving important weights away from the last task end (EWC++)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from iblurry.components.lazy_torch import Tensor, nn, no_grad, torch
from iblurry.parts.context import Forward, Update
from iblurry.parts.part import Part, scratch, state
from iblurry.parts.terms.term import Term

EACH: Any = torch  # its functions of many tensors at once: a few kernels for all weights, and nothing to compile


def _zeros(part: Part) -> dict[str, Tensor]:
    return {name: torch.zeros_like(p) for name, p in _trained(part)}


def _trained(part: Part) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in part.context.network.body.named_parameters() if p.requires_grad]


def _weights(part: Part) -> list[Tensor]:
    return [p for _, p in _trained(part)]


def _gradients(weights: Sequence[Tensor]) -> list[Tensor]:
    return [w.grad for w in weights if w.grad is not None]


class Elastic(Term):
    """EWC++: strength * sum F*_p (theta_p - theta*_p)^2 over the body, with a running Fisher estimate F.

    Parameters
    ----------
    strength : float
        Weight of the penalty.
    decay : float
        Of the Fisher estimate for each update, in [0, 1).
    skip_first : bool
        Whether the gradient of the very first update is left out of F; as released.

    Notes
    -----
    After an update with gradient g of the whole loss: F <- decay * F + (1 - decay) * g^2, the first one as it is. At
    the end of a task F* <- F and theta* <- theta; F itself runs on. The head is free.

    Differs: g is the gradient of the batch's mean, not a mean over samples of squared gradients, and the very first
    update of a run is left out; both as released. On torch 2 the released program's F stays zero, which makes it ER.

    Chaudhry et al., "Riemannian walk for incremental learning", ECCV 2018; Kirkpatrick et al., PNAS 2017.
    """

    ranges: ClassVar[dict[str, str]] = {"strength": "[0, inf)", "decay": "[0, 1)"}
    needs_boundaries: ClassVar[bool] = True
    stores: ClassVar[str] = "an anchor and two Fisher values per weight of the body"

    strength: float = 100.0
    decay: float = 0.5
    skip_first: bool = True

    fisher: dict[str, Tensor] = state(_zeros)  # F
    weight: dict[str, Tensor] = state(_zeros)  # F*, 0 before the first boundary: no anchor yet
    anchor: dict[str, Tensor] = state(_zeros)  # theta*
    steps: Tensor = state(lambda part: torch.zeros_like(part.context.memory.clock))  # (1,) updates seen

    slopes: list[Tensor] = scratch(lambda part: [])  # F* (theta - theta*) by weight, from `loss` to `add_gradient`

    @no_grad
    def loss(self, forward: Forward) -> Tensor:
        if not self.weight:  # a frozen body
            return forward.logits.new_zeros(())
        offsets = EACH._foreach_sub(_weights(self), [*self.anchor.values()])
        self.slopes = EACH._foreach_mul(offsets, [*self.weight.values()])
        EACH._foreach_mul_(offsets, self.slopes)
        sums: list[Tensor] = EACH._foreach_norm(offsets, 1)  # of values that are not negative
        return self.strength * torch.stack(sums).sum()

    @no_grad
    def add_gradient(self) -> None:
        if not self.weight:
            return
        weights = _weights(self)
        for p in weights:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad  # a body may have weights it never uses
        EACH._foreach_add_(_gradients(weights), self.slopes, alpha=2 * self.strength)
        self.slopes = []

    @no_grad
    def on_update(self, update: Update) -> None:
        self.steps += 1
        if not self.weight:
            return
        number = self.steps - int(self.skip_first)  # 0: left out, 1: as it is, from then on averaged
        share = torch.where(number == 1, 1.0, torch.where(number > 1, 1 - self.decay, 0.0))
        fisher, gradients = [*self.fisher.values()], _gradients(_weights(self))
        squares = EACH._foreach_mul(gradients, gradients)
        EACH._foreach_sub_(squares, fisher)
        EACH._foreach_mul_(squares, share.squeeze().float())
        EACH._foreach_add_(fisher, squares)

    def on_boundary(self) -> None:
        for name, p in _trained(self):
            self.weight[name].copy_(self.fisher[name])
            self.anchor[name].copy_(p.detach())
