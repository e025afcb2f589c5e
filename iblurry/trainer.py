"""The trainer: takes one update. The host draws rows, throws the dice and sets the rate; the device computes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from iblurry.augment.pipeline import AugmentParams
from iblurry.engine.optimizer import reset_moments, set_lr
from iblurry.memory import Batch
from iblurry.parts.context import Context, Drawn, Forward, Update
from iblurry.parts.cost import Passes
from iblurry.parts.part import Part, spending
from iblurry.training import Training

AHEAD = 64  # updates whose rows are drawn at once


class Trainer:
    """The same for every course: what differs is asked of the parts, in the order of the lines of `_on_device`."""

    def __init__(
        self,
        training: Training,
        context: Context,
        *,
        streamed: int = 0,  # samples of the stream in each batch
        measure_every: int = 1,
        frozen_norm: bool = False,
    ) -> None:
        self.training, self.context, self.engine = training, context, context.engine
        self.measure_every, self.frozen_norm = measure_every, frozen_norm
        self.parts = dict(training.parts())
        self.measures = any(part.needs_losses for part in self.parts.values())
        body, head = context.network.body_parameters(), context.network.head_parameters()
        self.optimizer = training.optimizer.build([body, head] if training.schedule.separate_head_lr else [body + head])
        self.loss = torch.zeros((), device=self.engine.device)  # of the last update, written by the step
        self._begin()
        self._nothing = Drawn(torch.zeros(0, dtype=torch.int64, device=context.engine.device), None)
        self._step = self.engine.compile(self._on_device, self._graph_key)
        size = streamed + training.rehearsal.joins(sys.maxsize)
        self.engine.expect_batch_size(context.network, context.pipeline, size)

    def _begin(self) -> None:
        """Nothing was trained yet."""
        self.loss.zero_()
        self._lrs: tuple[float, float] | None = None  # that the optimizer has
        self._ahead: dict[str, Ahead] = {}
        self._form: Hashable = None  # of the last update: what decides what it spends
        self._extra: dict[str, Passes] = {}  # that its parts send through a network, by purpose

    def restart(self) -> None:
        """As a new one would be for what the bench holds now, but in place: steps captured before serve again."""
        self._begin()
        self.forget()
        for part in self.parts.values():
            part.restart()

    @property
    def lr(self) -> float:
        """That of the last update, which nobody has to wait for."""
        return self.training.schedule.lr if self._lrs is None else self._lrs[0]

    def forget_head(self) -> None:
        """Starts the head's optimizer state again."""
        reset_moments(self.optimizer, self.context.network.head_parameters())

    def forget(self) -> None:
        """Starts the whole optimizer again."""
        reset_moments(self.optimizer, list(self.context.network.parameters()))

    def update(self, stream: Batch, *, last_of_round: bool) -> None:
        """The host's half."""
        context, training = self.context, self.training
        drawn = {
            place: self._draw(place, part, len(stream.labels))
            for place, part in self.parts.items()
            if part.rows_per_update
        }
        joins = training.rehearsal.joins(len(drawn.get("rehearsal", self._nothing).rows))
        params = context.pipeline.draw_params(context.rng, context.updates, len(stream.labels) + joins)
        lrs = (training.schedule.lr, training.schedule.head_lr)
        if lrs != self._lrs:
            for group, lr in zip(self.optimizer.param_groups, lrs, strict=False):  # the second only where apart
                set_lr(group, lr)
            self._lrs = lrs
        context.lr = self.optimizer.param_groups[0]["lr"]
        context.updates += 1
        measure = self.measures and context.updates % self.measure_every == 0
        self._count(len(stream.labels), joins, measure)
        rows, losses = self._step(stream, drawn, params, measure)
        training.schedule.advance(Update(rows, losses, last_of_round))

    def _count(self, streamed: int, joins: int, measure: bool) -> None:
        """What the update to come spends: integers of the host's, whatever the device replays."""
        context, batch = self.context, streamed + joins
        form = (streamed, joins, context.memory.size, context.network.known, context.tasks, self._graph_key())
        if form != self._form:
            costs = spending(self.parts.values(), context.load(streamed, batch))
            self._form = form
            self._extra = {purpose: cost.update for purpose, cost in costs.items() if cost.update != Passes()}
        spent = context.spent
        spent.updates += 1
        spent.forward["training"] += batch
        spent.backward["training"] += batch
        spent.forward["losses"] += context.memory.size if measure else 0  # without the empty rows a GPU takes along
        for purpose, passes in self._extra.items():
            spent.add(purpose, passes)

    def _draw(self, place: str, part: Part, streamed: int) -> Drawn:
        """Rows for one part, and dice to vary them with where it wants that."""
        context, step = self.context, self.context.updates
        ahead = self._ahead.get(place)
        if ahead is None or not ahead.holds(step, context.memory.size):
            ahead = self._ahead[place] = Ahead.drawn(part, f"{place} draws", context)
        rows = ahead.rows[step - ahead.first]
        params = (
            context.pipeline.draw_params(context.rng, step, streamed + len(rows), f"{place} dice")
            if part.needs_augment_params
            else None
        )
        return Drawn(rows, params)

    def _on_device(
        self, stream: Batch, drawn: dict[str, Drawn], params: AugmentParams, measure: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The device's half. Tensors only: no value is read, so it can run as a captured graph."""
        context, training, network = self.context, self.training, self.context.network
        rows = training.rehearsal.choose(stream, drawn.get("rehearsal", self._nothing))
        batch = _join(stream, context.memory.read(rows))
        train = context.pipeline.compiled.get(len(batch.labels), context.pipeline.train)
        images = train(batch.images, params)
        partners = batch.labels.index_select(0, params.partner) if params.mixes else None
        network.train(not self.frozen_norm)
        forward = Forward(images, network(images), batch.labels, partners, params.lam)
        loss = functools.reduce(torch.add, [term.loss(forward) for term in training.terms])
        self.optimizer.zero_grad()
        loss.backward()
        for i, rule in enumerate(training.gradient):
            rule.adjust(drawn.get(f"gradient.{i}", self._nothing))
        self.optimizer.step()
        with torch.no_grad():
            losses = context.memory_losses() if measure else None
            for part in self.parts.values():
                part.on_update(Update(rows, losses))
            self.loss.copy_(loss)
        return rows, losses

    def _graph_key(self) -> Hashable:
        """What of the host's knowledge is in the device's half, besides its arguments."""
        return tuple([part.graph_key for part in self.parts.values()])


class Ahead(NamedTuple):
    """The rows of the next updates, as long as the memory keeps its size: drawn and sent to the device together."""

    first: int  # update
    size: int  # of the memory
    rows: Sequence[Tensor]  # by update

    def holds(self, step: int, size: int) -> bool:
        return size == self.size and 0 <= step - self.first < len(self.rows)

    @classmethod
    def drawn(cls, part: Part, purpose: str, context: Context) -> Self:
        first, size = context.updates, context.memory.size
        rows = [part.draw(purpose, first, size)]
        while context.memory.full and len(rows) < AHEAD and len(rows[-1]) == len(rows[0]):
            rows.append(part.draw(purpose, first + len(rows), size))
        if len(rows[-1]) != len(rows[0]):  # the last batch of an epoch
            del rows[-1]
        return cls(first, size, context.engine.to_device(torch.tensor(rows, dtype=torch.int64)).unbind())


def _join(stream: Batch, memory: Batch) -> Batch:
    """Streamed samples first."""
    if not len(stream.labels):
        return memory
    return Batch(torch.cat([stream.images, memory.images]), torch.cat([stream.labels, memory.labels]))
