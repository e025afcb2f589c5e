"""Term: what is added to the loss? The cross-entropy, aware of mixed images."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from iblurry.components.lazy_torch import F, Tensor, torch
from iblurry.parts.context import Forward
from iblurry.parts.part import Part


class Term(Part):
    """One summand of the training loss."""

    kind: ClassVar[str] = "term"

    needs_plain: ClassVar[bool] = False  # asks for `Forward.plain`

    @property
    def unmixed_last(self) -> bool:
        """Whether CutMix must leave out the last update of a round."""
        return False

    def unmixed(self, rows: int) -> int:
        """How many of so many memory rows in the batch, the last ones, CutMix must leave as they are."""
        return 0

    def prepare(self, images: Tensor, plain: Tensor | None) -> Any:
        """What the loss needs besides the network's own pass, such as the answers of a teacher; `Forward.prepared`.

        On a GPU it is computed at the same time as that pass.

        Parameters
        ----------
        images, plain : Tensor
            As of `Forward`.
        """
        return None

    @abstractmethod
    def loss(self, forward: Forward) -> Tensor:
        """A scalar."""

    def add_gradient(self) -> None:
        """Adds to each `parameter.grad`, after the backward pass, the gradient of a loss that has no graph.

        A penalty on the weights is faster without one: a graph adds its gradients tensor by tensor.
        """


class CrossEntropy(Term):
    """lam * CE(own label) + (1 - lam) * CE(partner's label), the mean over the batch.

    Yun et al., "CutMix", ICCV 2019.
    """

    def loss(self, forward: Forward) -> Tensor:
        return cross_entropy(forward, forward.logits)


def cross_entropy(forward: Forward, logits: Tensor, part: slice | None = None, *, reduction: str = "mean") -> Tensor:
    """Computes the loss of these logits for the labels of the batch, or of a part of it, mixed as its images are."""
    labels, partners = forward.labels, forward.partners
    own = F.cross_entropy(logits, labels if part is None else labels[part], reduction=reduction)
    if partners is None:
        return own
    mixed = F.cross_entropy(logits, partners if part is None else partners[part], reduction=reduction)
    return torch.lerp(mixed, own, forward.lam[0])


def cross_entropy_by_hand(forward: Forward) -> tuple[Tensor, Tensor]:
    """The mean loss and its gradient for the logits, bit for bit as autograd has it, in less time for a small batch."""
    aten, logits = torch.ops.aten, forward.logits
    log_softmax, one = torch.log_softmax(logits, 1), torch.ones((), dtype=logits.dtype)

    def part(labels: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        loss, count = aten.nll_loss_forward.default(log_softmax, labels, None, 1, -100)
        gradient = aten.nll_loss_backward.default(weight, log_softmax, labels, None, 1, -100, count)
        return loss, torch._log_softmax_backward_data(gradient, log_softmax, 1, logits.dtype)

    if forward.partners is None:
        return part(forward.labels, one)
    lam = forward.lam[0]
    (own, of_own), (mixed, of_mixed) = part(forward.labels, lam), part(forward.partners, one - lam)
    return torch.lerp(mixed, own, lam), of_own.add_(of_mixed)
