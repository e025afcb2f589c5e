"""The trainer: takes one update. The host draws rows, throws the dice and sets the rate; the device computes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from iblurry.augment.pipeline import Throw
from iblurry.course import Course
from iblurry.engine.optimizer import forget, set_rate
from iblurry.memory import Batch
from iblurry.parts.cost import Passes
from iblurry.parts.part import Part, spending
from iblurry.parts.workbench import Drawn, Forward, Update, Workbench

AHEAD = 64  # updates whose rows are drawn at once


class Trainer:
    """The same for every course: what differs is asked of the parts, in the order of the lines of `_on_device`."""

    def __init__(
        self,
        course: Course,
        bench: Workbench,
        *,
        streamed: int = 0,  # samples of the stream in each batch
        measure_every: int = 1,
        frozen_norm: bool = False,
    ) -> None:
        self.course, self.bench, self.engine = course, bench, bench.engine
        self.measure_every, self.frozen_norm = measure_every, frozen_norm
        self.parts = dict(course.parts())
        self.measures = any(part.needs_losses for part in self.parts.values())
        body, head = bench.network.body_parameters(), bench.network.head_parameters()
        self.optimizer = course.optimizer.build([body, head] if course.schedule.parts_head else [body + head])
        self.loss = torch.zeros((), device=self.engine.device)  # of the last update, written by the step
        self._begin()
        self._nothing = Drawn(torch.zeros(0, dtype=torch.int64, device=bench.engine.device), None)
        self._step = self.engine.compile(self._on_device, self._phase)
        self.engine.expect(bench.network, bench.pipeline, streamed + course.rehearsal.joins(sys.maxsize))

    def _begin(self) -> None:
        """Nothing was trained yet."""
        self.loss.zero_()
        self._rates: tuple[float, float] | None = None  # that the optimizer has
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
    def rate(self) -> float:
        """That of the last update, which nobody has to wait for."""
        return self.course.schedule.now if self._rates is None else self._rates[0]

    def forget_head(self) -> None:
        """Starts the head's optimizer state again."""
        forget(self.optimizer, self.bench.network.head_parameters())

    def forget(self) -> None:
        """Starts the whole optimizer again."""
        forget(self.optimizer, list(self.bench.network.parameters()))

    def update(self, stream: Batch, *, last_of_round: bool) -> None:
        """The host's half."""
        bench, course = self.bench, self.course
        drawn = {place: self._draw(place, part, len(stream.labels)) for place, part in self.parts.items() if part.draws}
        joins = course.rehearsal.joins(len(drawn.get("rehearsal", self._nothing).rows))
        throw = bench.pipeline.throw(bench.dice, bench.updates, len(stream.labels) + joins)
        rates = (course.schedule.now, course.schedule.head_now)
        if rates != self._rates:
            for group, rate in zip(self.optimizer.param_groups, rates, strict=False):  # the second only where apart
                set_rate(group, rate)
            self._rates = rates
        bench.rate = self.optimizer.param_groups[0]["lr"]
        bench.updates += 1
        measure = self.measures and bench.updates % self.measure_every == 0
        self._count(len(stream.labels), joins, measure)
        rows, losses = self._step(stream, drawn, throw, measure)
        course.schedule.advance(Update(rows, losses, last_of_round))

    def _count(self, streamed: int, joins: int, measure: bool) -> None:
        """What the update to come spends: integers of the host's, whatever the device replays."""
        bench, batch = self.bench, streamed + joins
        form = (streamed, joins, bench.memory.size, bench.network.known, bench.tasks, self._phase())
        if form != self._form:
            costs = spending(self.parts.values(), bench.load(streamed, batch))
            self._form = form
            self._extra = {purpose: cost.update for purpose, cost in costs.items() if cost.update != Passes()}
        spent = bench.spent
        spent.updates += 1
        spent.forward["training"] += batch
        spent.backward["training"] += batch
        spent.forward["losses"] += bench.memory.size if measure else 0  # without the empty rows a GPU takes along
        for purpose, passes in self._extra.items():
            spent.add(purpose, passes)

    def _draw(self, place: str, part: Part, streamed: int) -> Drawn:
        """Rows for one part, and dice to vary them with where it wants that."""
        bench, step = self.bench, self.bench.updates
        ahead = self._ahead.get(place)
        if ahead is None or not ahead.holds(step, bench.memory.size):
            ahead = self._ahead[place] = Ahead.drawn(part, f"{place} draws", bench)
        rows = ahead.rows[step - ahead.first]
        throw = bench.pipeline.throw(bench.dice, step, streamed + len(rows), f"{place} dice") if part.varies else None
        return Drawn(rows, throw)

    def _on_device(
        self, stream: Batch, drawn: dict[str, Drawn], throw: Throw, measure: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The device's half. Tensors only: no value is read, so it can run as a captured graph."""
        bench, course, network = self.bench, self.course, self.bench.network
        rows = course.rehearsal.choose(stream, drawn.get("rehearsal", self._nothing))
        batch = _join(stream, bench.memory.read(rows))
        train = bench.pipeline.quick.get(len(batch.labels), bench.pipeline.train)
        images = train(batch.images, throw)
        partners = batch.labels.index_select(0, throw.partner) if throw.mixes else None
        network.train(not self.frozen_norm)
        forward = Forward(images, network(images), batch.labels, partners, throw.lam)
        loss = functools.reduce(torch.add, [term.loss(forward) for term in course.terms])
        self.optimizer.zero_grad()
        loss.backward()
        for i, rule in enumerate(course.gradient):
            rule.adjust(drawn.get(f"gradient.{i}", self._nothing))
        self.optimizer.step()
        with torch.no_grad():
            losses = bench.memory_losses() if measure else None
            for part in self.parts.values():
                part.on_update(Update(rows, losses))
            self.loss.copy_(loss)
        return rows, losses

    def _phase(self) -> Hashable:
        """What of the host's knowledge is in the device's half, besides its arguments."""
        return tuple([part.phase for part in self.parts.values()])


class Ahead(NamedTuple):
    """The rows of the next updates, as long as the memory keeps its size: drawn and sent to the device together."""

    first: int  # update
    size: int  # of the memory
    rows: Sequence[Tensor]  # by update

    def holds(self, step: int, size: int) -> bool:
        return size == self.size and 0 <= step - self.first < len(self.rows)

    @classmethod
    def drawn(cls, part: Part, purpose: str, bench: Workbench) -> Self:
        first, size = bench.updates, bench.memory.size
        rows = [part.draw(purpose, first, size)]
        while bench.memory.full and len(rows) < AHEAD and len(rows[-1]) == len(rows[0]):
            rows.append(part.draw(purpose, first + len(rows), size))
        if len(rows[-1]) != len(rows[0]):  # the last batch of an epoch
            del rows[-1]
        return cls(first, size, bench.engine.stage(torch.tensor(rows, dtype=torch.int64)).unbind())


def _join(stream: Batch, memory: Batch) -> Batch:
    """Streamed samples first."""
    if not len(stream.labels):
        return memory
    return Batch(torch.cat([stream.images, memory.images]), torch.cat([stream.labels, memory.labels]))
