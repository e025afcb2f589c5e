"""Elastic: a quadratic penalty on moving important weights away from the last task end (EWC++)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from iblurry.parts.context import Forward, Update
from iblurry.parts.part import Part, scratch, state
from iblurry.parts.terms.term import Term


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

    value: Callable[..., Tensor] = scratch(lambda part: part.context.engine.fuse(part._value))
    add: Callable[..., None] = scratch(lambda part: part.context.engine.fuse(part._add))
    move: Callable[..., None] = scratch(lambda part: part.context.engine.fuse(part._move))

    @torch.no_grad()
    def loss(self, forward: Forward) -> Tensor:
        if not self.weight:  # a frozen body
            return forward.logits.new_zeros(())
        return self.value(_weights(self), [*self.weight.values()], [*self.anchor.values()])

    @torch.no_grad()
    def add_gradient(self) -> None:
        weights = _weights(self)
        for p in weights:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad  # a body may have weights it never uses
        self.add(_gradients(weights), weights, [*self.weight.values()], [*self.anchor.values()])

    @torch.no_grad()
    def on_update(self, update: Update) -> None:
        self.steps += 1
        number = self.steps - int(self.skip_first)  # 0: left out, 1: as it is, from then on averaged
        share = torch.where(number == 1, 1.0, torch.where(number > 1, 1 - self.decay, 0.0))
        self.move([*self.fisher.values()], _gradients(_weights(self)), share)

    def _value(self, weights: list[Tensor], fisher: list[Tensor], anchors: list[Tensor]) -> Tensor:
        parts = [(f * (w - a).square()).sum() for w, f, a in zip(weights, fisher, anchors, strict=True)]
        return self.strength * torch.stack(parts).sum()

    def _add(self, grads: list[Tensor], weights: list[Tensor], fisher: list[Tensor], anchors: list[Tensor]) -> None:
        for g, w, f, a in zip(grads, weights, fisher, anchors, strict=True):
            g.addcmul_(f, w - a, value=2 * self.strength)

    def _move(self, fisher: list[Tensor], grads: list[Tensor], share: Tensor) -> None:
        for f, g in zip(fisher, grads, strict=True):
            f.lerp_(g.square(), share)

    def on_boundary(self) -> None:
        for name, p in _trained(self):
            self.weight[name].copy_(self.fisher[name])
            self.anchor[name].copy_(p.detach())
