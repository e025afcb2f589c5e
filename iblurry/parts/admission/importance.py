"""Importance: the fullest class gives up the member whose training lowered the memory's loss the least."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from iblurry.errors import InputError
from iblurry.memory import One
from iblurry.parts.admission.fullest import Fullest
from iblurry.parts.cost import Cost, Load, Passes
from iblurry.parts.part import column, state
from iblurry.parts.workbench import Update


class Importance(Fullest):
    """CLIB's sample-wise importance (Algorithms 1 and 2).

    After an update with memory rows I, with dl the decrease of the memory's mean loss:
        H_i <- H_i + step * (dl - mean(H_I))        for each i in I
    A newcomer starts with the mean of its class; the lowest H of the fullest class leaves, the longest held on a tie.

    Differs: dl is taken over the rows not rewritten since the last measure, with no forward pass for the newcomer;
    `decrease="running"` keeps Algorithm 2's own running mean l_prev instead, at one forward pass per stored sample.
    Differs: the paper leaves the mean of no members open; the lone member of a class starts at 0 while the memory fills
    and at the mean of all rows afterwards.

    Koh et al., "Online Continual Learning on Class Incremental Blurry Task Configuration with Anytime
    Inference", ICLR 2022.
    """

    needs_losses: ClassVar[bool] = True
    stores: ClassVar[str] = "an importance, a loss and a count of uses per row"

    step: float = 0.1  # lambda; the paper gives no value
    rule: Literal["paper", "released"] = "paper"  # released: H_i + step * (dl + mean(H_I) / |I|)
    decrease: Literal["untouched", "running"] = "untouched"

    importance: Tensor = column("importance")  # (capacity + 1,) H
    measured: Tensor = column("measured loss")  # (capacity + 1,) when it was last measured
    used: Tensor = column("used")  # (capacity + 1,) times in a batch since then
    mark: Tensor = state(lambda part: torch.zeros_like(part.bench.memory.clock))  # the memory's clock then
    running: Tensor = state(lambda part: part.bench.memory.clock.double())  # (1,) l_prev of Algorithm 2

    def __post_init__(self) -> None:
        if not 0 < self.step <= 1:
            raise InputError(f"Importance(step={self.step}): the step lies in (0, 1]; 0.1 is the released program's.")
        if self.rule not in ("paper", "released"):
            raise InputError(f"Importance(rule={self.rule!r}): the rule is 'paper' or 'released'.")
        if self.decrease not in ("untouched", "running"):
            raise InputError(f"Importance(decrease={self.decrease!r}): the decrease is 'untouched' or 'running'.")

    def released(self) -> Self:
        return dataclasses.replace(self, rule="released", decrease="untouched")

    def cost(self, load: Load) -> Cost:
        return Cost(sample=Passes(forward=1)) if self.decrease == "running" else Cost()

    def pick(self, label: int) -> Tensor:
        memory = self.bench.memory
        importance = torch.where(memory.members(label), self.importance[:-1], torch.inf)
        age = torch.where(importance == importance.min(), memory.written_at[:-1], torch.iinfo(torch.int64).max)
        return age.argmin(0, keepdim=True)

    def welcome(self, row: Tensor, one: One) -> None:
        super().welcome(row, one)
        memory = self.bench.memory
        replaced = memory.offered > memory.capacity
        if self.counts[one.label] > 1:
            others = memory.members(one.label).index_fill(0, row, False)
            start = (self.importance[:-1] * others).sum(0, keepdim=True) / (self.counts[one.label] - 1)
        elif replaced:
            start = self.importance[:-1].mean(0, keepdim=True)  # the one that left is still in it, as released
        else:
            start = torch.zeros_like(self.running)
        if self.decrease == "running":
            self._count_in(row, one, replaced)
        self.importance.index_copy_(0, row, start)

    def on_update(self, update: Update) -> None:
        self.used.index_add_(0, update.rows, torch.ones_like(update.rows, dtype=self.used.dtype))
        if update.losses is None:
            return
        decrease = self._decrease(update.losses)
        uses = self.used.sum()
        predicted = (self.importance * self.used).sum() / uses.clamp(min=1)
        surprise = decrease - predicted if self.rule == "paper" else decrease + predicted / uses.clamp(min=1)
        self.importance += torch.where(self.used > 0, self.step * surprise, 0.0)
        self.used.zero_()

    def _decrease(self, losses: Tensor) -> Tensor:
        """How far the memory's mean loss fell since the last measure."""
        memory = self.bench.memory
        if self.decrease == "running":
            filled = memory.filled()
            mean = (losses * filled).sum() / filled.sum()
            decrease = self.running[0] - mean
            self.running.copy_(mean)
        else:
            same = memory.filled() & ~memory.rewritten_since(self.mark)
            decrease = ((self.measured[:-1] - losses) * same).sum() / same.sum().clamp(min=1)
            self.mark.copy_(memory.clock)
        self.measured[:-1].copy_(losses)
        return decrease

    def _count_in(self, row: Tensor, one: One, replaced: bool) -> None:
        """Algorithm 2, lines 9 and 12: l_prev without the one that leaves, then with the one that enters."""
        size = self.bench.memory.size
        loss = self.bench.losses(one.images, one.labels).double()
        if replaced and size > 1:
            self.running.copy_((size * self.running - self.measured.index_select(0, row)) / (size - 1))
        self.running.copy_(((size - 1) * self.running + loss) / size)
        self.measured.index_copy_(0, row, loss)
