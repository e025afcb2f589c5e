"""StoredLogits: half of the rehearsed rows are held to the answers that were stored with them (DER++)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.compute import Cost, Passes, Workload
from iblurry.network import FLOOR
from iblurry.parts.context import Forward, Update
from iblurry.parts.memory import Sample
from iblurry.parts.part import column, scratch
from iblurry.parts.terms.term import Term, cross_entropy


class StoredLogits(Term):
    """CE(streamed) + beta * CE(first half of the rows) + alpha * MSE(logits of the other half, their stored ones).

    Parameters
    ----------
    alpha : float
        Weight of the squared difference, a mean over rows and classes.
    beta : float
        Weight of the rows' cross-entropy.
    source : {"answer", "update"}
        Which logits are stored: the answer to the plain image when it is stored, or what the last update of its round
        gave, augmented and in train mode; released: the latter.

    Notes
    -----
    Classes met after a row was stored are left out of its difference. Rows of the second half are not mixed by CutMix.
    With source="update" neither is the last update of a round; without streamed samples in the batch it is the answer.

    Buzzega et al., "Dark experience for general continual learning", NeurIPS 2020.
    """

    ranges: ClassVar[dict[str, str]] = {"alpha": "[0, inf)", "beta": "[0, inf)"}
    stores: ClassVar[str] = "logits with each row of the memory"
    released_fields: ClassVar[dict[str, Any]] = {"source": "update"}

    alpha: float = 0.5
    beta: float = 0.5
    source: Literal["answer", "update"] = "answer"

    stored: Tensor = column(
        "logits", fill=FLOOR, shape=lambda part: (part.context.network.rows,), dtype="float32"
    )  # FLOOR where the class was not met yet
    last: list[Tensor] = scratch(lambda part: [])  # logits of the streamed samples in the last update, where needed
    answer: Callable[[Tensor, Tensor], None] = scratch(lambda part: part.context.compile(part._answer))
    round: tuple[int, int] = scratch(lambda part: (0, 0))  # updates at the last store, samples stored since an update

    def cost(self, workload: Workload) -> Cost:
        by_answer = self.source == "answer" or not workload.streamed
        return Cost(sample=Passes(forward=1)) if by_answer else Cost()

    @property
    def unmixed_last(self) -> bool:
        return self.source == "update"

    def unmixed(self, rows: int) -> int:
        return rows - rows // 2

    def loss(self, forward: Forward) -> Tensor:
        count, logits, rows = forward.streamed, forward.logits, len(forward.rows)
        middle = count + rows // 2
        loss = logits.new_zeros(())
        if count:
            loss = loss + cross_entropy(forward, logits[:count], slice(count))
        if middle > count:
            loss = loss + self.beta * cross_entropy(forward, logits[count:middle], slice(count, middle))
        if rows:
            wanted = self.stored.index_select(0, forward.rows[rows // 2 :])
            squares = (logits[middle:] - wanted).square().masked_fill(wanted <= FLOOR, 0.0)
            loss = loss + self.alpha * squares.sum() / (len(wanted) * self.context.network.open.sum())
        return loss

    def on_update(self, update: Update) -> None:
        forward = update.forward
        if self.source == "update" and forward is not None and forward.streamed:
            if not self.last:  # the number of streamed samples never changes
                self.last.append(torch.empty_like(forward.logits[: forward.streamed]))
            self.last[0].copy_(forward.logits[: forward.streamed])

    def on_stored(self, row: Tensor, sample: Sample) -> None:
        updates, place = self.round
        place = place + 1 if updates == self.context.updates else 0
        self.round = (self.context.updates, place)
        if self.last:
            self.stored.index_copy_(0, row, self.last[0][place : place + 1])
        else:
            self.answer(row, sample.images)

    def _answer(self, row: Tensor, image: Tensor) -> None:
        self.stored.index_copy_(0, row, self.context.logits(image))
