"""LeastUsed: rehearses rows that were used least, uses of similar classes counted too (SAR)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from iblurry.components.lazy_torch import F, Tensor, torch
from iblurry.parts.context import Drawn, Update
from iblurry.parts.memory import Batch
from iblurry.parts.part import Part, column, state
from iblurry.parts.rehearsal.rehearsal import Rehearsal

BITS = 53  # of the random numbers that the host draws for each row


def _zeros(*shape: str) -> Tensor:
    """State: a number, or a row of features, for each class."""

    def make(part: Part) -> Tensor:
        network = part.context.network
        return torch.zeros([getattr(network, name) for name in shape], device=part.context.device)

    return state(make)


class LeastUsed(Rehearsal):
    """Rows drawn without repetition with probability proportional to exp(-h / T), h how much a row was used lately.

    Parameters
    ----------
    count : int
        Rows that join a batch.
    horizon : float
        k: uses are discounted by count / (rows * k) before each draw, so that their mean tends to k.
    temperature : float
        T.
    similarity : {"head", "own", "none"}
        How much a use of class b counts for class a: the similarity S_ab of their gradients at the head; only its own
        class; or not at all.
    rate : float
        Of the running means from which S is made, for each sample trained on.
    normalise : bool
        Whether h is divided by the number of rows, as the released program does, whose results were published.

    Notes
    -----
    c_i counts the uses of row i and U_y those of class y, both discounted; a row that leaves takes nothing of U away.
    h_i = max(0, (c_i (1 - S_{y_i y_i}) + sum_y S_{y_i y} U_y) / rows); without `normalise` c_i + sum_y S_{y_i y} U_y,
    as the paper writes it: a class whose gradients vary has a small S and is drawn all the more.

    A sample's gradient at the head is (p - onehot) outer f. With D and M the running means of its two factors for each
    class, S_ab = cos(D_a, D_b) cos(M_a, M_b) sqrt(s_a s_b) e_a e_b: s is the running mean of a sample's cosine with its
    class, e how far the means have left their start.

    Differs: gradients of the head instead of a random part of the convolutions; S of a new class starts at 0; the first
    50 samples are drawn like all others.

    Seo, Koh and Choi, "Budgeted online continual learning by adaptive layer freezing and frequency-based sampling",
    ICLR 2025.
    """

    ranges: ClassVar[dict[str, str]] = {
        "count": "[1, inf)",
        "horizon": "(0, inf)",
        "temperature": "(0, inf)",
        "rate": "(0, 1)",
    }
    stores: ClassVar[str] = "uses of each row and class, and a mean gradient for each class"

    count: int = 16  # type: ignore[misc]
    horizon: float = 4.0
    temperature: float = 0.125
    similarity: Literal["head", "own", "none"] = "head"
    rate: float = 0.001
    normalise: bool = True

    uses: Tensor = column("uses")  # c
    class_uses: Tensor = _zeros("rows")  # U
    errors: Tensor = _zeros("rows", "rows")  # D
    features: Tensor = _zeros("rows", "features")  # M
    spread: Tensor = state(lambda part: torch.ones(part.context.network.rows, device=part.context.device))  # s
    started: Tensor = _zeros("rows")  # e

    def draw_rows(self, purpose: str, step: int, size: int) -> Sequence[int]:
        """A random number for each row, as `choose` draws on the device.

        Empty rows have one too once a batch is full: the step keeps its shapes, and its graph, while the memory fills.
        """
        rows = size if size < self.count else self.context.memory.capacity
        drawn: list[int] = (self.context.rng.uniforms(purpose, step, rows) * 2.0**BITS).astype(int).tolist()
        return drawn

    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        rows, memory = len(drawn.rows), self.context.memory
        labels, uses, filled = memory.labels[:rows].clamp(min=0), self.uses[:rows], memory.filled()[:rows]
        size = filled.sum()
        discount = torch.where(size > self.count, 1 - self.count / (size * self.horizon), 1.0)
        self.uses.mul_(discount)
        self.class_uses.mul_(discount)
        similar = self.similarities()
        used = (similar @ self.class_uses).index_select(0, labels)
        if self.normalise:
            own = similar.diagonal().index_select(0, labels)
            effective = ((used + uses * (1 - own)) / size).clamp(min=0)
        else:
            effective = uses + used
        uniforms = (drawn.rows.double() + 0.5) * 2.0**-BITS
        noise = -(-uniforms.log()).log()  # Gumbel: the largest sums are a draw without repetition
        scores = (noise - effective / self.temperature).masked_fill(~filled, -torch.inf)
        chosen = scores.topk(self.joins(rows)).indices
        self.uses.index_add_(0, chosen, torch.ones_like(chosen, dtype=self.uses.dtype))
        self.class_uses.index_add_(0, labels.index_select(0, chosen), torch.ones_like(chosen).float())
        return chosen

    def similarities(self) -> Tensor:
        """S, (rows, rows)."""
        if self.similarity == "none":
            return torch.zeros_like(self.errors)
        if self.similarity == "own":
            return torch.eye(len(self.errors), device=self.errors.device)
        errors, features = F.normalize(self.errors), F.normalize(self.features)
        trust = self.spread.clamp(min=0).sqrt() * self.started
        return (errors @ errors.T) * (features @ features.T) * trust[:, None] * trust

    def on_update(self, update: Update) -> None:
        forward = update.forward
        if self.similarity != "head" or forward is None:
            return
        labels, features = forward.labels, forward.features.detach().float()
        errors = forward.logits.detach().softmax(1)
        errors = errors.scatter_add(1, labels[:, None], -torch.ones_like(labels)[:, None].float())
        cosines = F.cosine_similarity(errors, self.errors.index_select(0, labels))
        cosines = cosines * F.cosine_similarity(features, self.features.index_select(0, labels))
        member = torch.zeros_like(self.errors[:, :1]).expand(-1, len(labels)).scatter(0, labels[None], 1.0)  # (rows, B)
        counts = member.sum(1)
        weights = 1 - (1 - self.rate) ** counts  # as many steps as the batch has samples of the class
        means = member / counts.clamp(min=1)[:, None]
        self.errors.lerp_(means @ errors, weights[:, None])
        self.features.lerp_(means @ features, weights[:, None])
        self.spread.lerp_(means @ cosines, weights)
        self.started.lerp_(torch.ones_like(self.started), weights)
