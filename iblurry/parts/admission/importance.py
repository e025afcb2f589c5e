"""Importance: the largest class gives up the member whose training lowered the memory's loss the least."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.compute import Cost, Passes, Workload
from iblurry.parts.admission.admission import LargestClass
from iblurry.parts.context import Update
from iblurry.parts.memory import Sample
from iblurry.parts.part import column, scratch, state

UNKNOWN_LABEL = -1  # the head row, in a step that is the same for all of them


class Importance(LargestClass):
    """CLIB's sample-wise importance (Algorithms 1 and 2).

    Parameters
    ----------
    step : float
        Step size lambda of the importance estimate, in (0, 1]. The paper gives no value; 0.1 is the released program's.
    rule : {"paper", "released"}
        "released": H_i <- H_i + step * (dl + mean(H_I) / |I|).
    decrease : {"untouched", "running"}
        How dl is measured, see `Differs:` below.

    Notes
    -----
    After an update with memory rows I, with dl the decrease of the memory's mean loss:
        H_i <- H_i + step * (dl - mean(H_I))        for each i in I
    A new sample starts with the mean of its class; the lowest H of the largest class leaves, the longest held on a tie.

    Differs: dl is taken over the rows not rewritten since the last measure, with no forward pass for the new sample;
    `decrease="running"` keeps Algorithm 2's own running mean l_prev instead, at one forward pass per stored sample.
    Differs: the paper leaves the mean of no members open; the lone member of a class starts at 0 while the memory fills
    and at the mean of all rows afterwards.

    Koh et al., "Online Continual Learning on Class Incremental Blurry Task Configuration with Anytime
    Inference", ICLR 2022.
    """

    ranges: ClassVar[dict[str, str]] = {"step": "(0, 1]"}
    needs_losses: ClassVar[bool] = True
    stores: ClassVar[str] = "an importance, a loss and a count of uses per row"
    released_fields: ClassVar[dict[str, Any]] = {"rule": "released", "decrease": "untouched"}

    step: float = 0.1
    rule: Literal["paper", "released"] = "paper"
    decrease: Literal["untouched", "running"] = "untouched"

    importance: Tensor = column("importance")  # (capacity + 1,) H
    measured: Tensor = column("measured loss")  # (capacity + 1,) when it was last measured
    used: Tensor = column("used")  # (capacity + 1,) times in a batch since then
    mark: Tensor = state(lambda part: torch.zeros_like(part.context.memory.clock))  # the memory's clock then
    running: Tensor = state(lambda part: part.context.memory.clock.double())  # (1,) l_prev of Algorithm 2
    labels: Tensor = scratch(lambda part: torch.arange(part.context.network.rows, device=part.context.memory.device))
    swap: Callable[..., Tensor] = scratch(lambda part: part.context.compile(part._swap))
    lowest: Callable[..., Tensor] = scratch(lambda part: part.context.engine.fuse(part._lowest))
    start: Callable[..., Tensor] = scratch(lambda part: part.context.engine.fuse(part._start))
    credit: Callable[..., None] = scratch(lambda part: part.context.engine.fuse(part._credit))

    @property
    def needs_all_losses(self) -> bool:
        return self.decrease == "running"

    def cost(self, workload: Workload) -> Cost:
        return Cost(sample=Passes(forward=1)) if self.decrease == "running" else Cost()

    def admit(self, sample: Sample) -> Tensor:
        if not self.context.memory.full or self.decrease == "running":
            return super().admit(sample)
        largest = self.largest(sample.label)
        self.counts[largest] -= 1
        self.counts[sample.label] += 1
        alone = self.counts[sample.label] == 1
        return self.swap(self.labels[largest : largest + 1], sample.images, sample.labels, alone)

    def pick(self, label: int) -> Tensor:
        return self.lowest(self.labels[label : label + 1])

    def on_stored(self, row: Tensor, sample: Sample) -> None:
        super().on_stored(row, sample)
        memory = self.context.memory
        replaced, alone = memory.offered > memory.capacity, self.counts[sample.label] == 1
        is_first = alone and not replaced
        start = torch.zeros_like(self.running) if is_first else self.start(row, sample.labels, alone)
        if self.decrease == "running":
            self._count_in(row, sample, replaced)
        self.importance.index_copy_(0, row, start)

    def on_amended(self) -> None:
        super().on_amended()
        self.mark.fill_(-1)  # no row is the same any more
        self.used.zero_()

    def on_update(self, update: Update) -> None:
        self.used.index_add_(0, update.rows, torch.ones_like(update.rows, dtype=self.used.dtype))
        if update.losses is not None:
            self.credit(update.losses)

    # ------------------------------------------------------------------------ on the device: no value is read

    def _swap(self, label: Tensor, images: Tensor, labels: Tensor, alone: bool) -> Tensor:
        """A new sample takes the row of the least important member of that class; the row, (1,)."""
        row = self.lowest(label)
        self.context.memory.write(row, Sample(images, labels, UNKNOWN_LABEL))
        self.importance.index_copy_(0, row, self.start(row, labels, alone))
        return row

    def _lowest(self, label: Tensor) -> Tensor:
        """Returns the row of the least important sample, (1,)."""
        memory = self.context.memory
        importance = torch.where(memory.members(label), self.importance[:-1], torch.inf)
        age = torch.where(importance == importance.min(), memory.written_at[:-1], torch.iinfo(torch.int64).max)
        return age.argmin(0, keepdim=True)

    def _start(self, row: Tensor, label: Tensor, alone: bool) -> Tensor:
        """The mean importance of the others of its class, or of all rows where it is alone, (1,)."""
        if alone:
            return self.importance[:-1].mean(0, keepdim=True)  # the one that left is still in it, as released
        others = self.context.memory.members(label).index_fill(0, row, False)
        return (self.importance[:-1] * others).sum(0, keepdim=True) / others.sum(0, keepdim=True)

    def _credit(self, losses: Tensor) -> None:
        """Each row that was used gets its share of how much better the memory is known now."""
        decrease = self._decrease(losses)
        uses = self.used.sum()
        predicted = (self.importance * self.used).sum() / uses.clamp(min=1)
        surprise = decrease - predicted if self.rule == "paper" else decrease + predicted / uses.clamp(min=1)
        self.importance += torch.where(self.used > 0, self.step * surprise, 0.0)
        self.used.zero_()

    def _decrease(self, losses: Tensor) -> Tensor:
        """How far the memory's mean loss fell since the last measure."""
        memory = self.context.memory
        if self.decrease == "running":
            filled = memory.filled()
            mean = (losses * filled).sum() / filled.sum()
            decrease = self.running[0] - mean
            self.running.copy_(mean)
        else:
            same = memory.measured_twice(self.measured[:-1], losses, self.mark)
            decrease = ((self.measured[:-1] - losses) * same).sum() / same.sum().clamp(min=1)
            self.mark.copy_(memory.clock)
        self.measured[:-1].copy_(losses)
        return decrease

    def _count_in(self, row: Tensor, sample: Sample, replaced: bool) -> None:
        """Algorithm 2, lines 9 and 12: l_prev without the one that leaves, then with the one that enters."""
        size = self.context.memory.size
        loss = self.context.losses(sample.images, sample.labels).double()
        if replaced and size > 1:
            self.running.copy_((size * self.running - self.measured.index_select(0, row)) / (size - 1))
        self.running.copy_(((size - 1) * self.running + loss) / size)
        self.measured.index_copy_(0, row, loss)
