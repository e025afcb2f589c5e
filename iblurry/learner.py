"""The learner: observes one labelled sample at a time, trains, answers at any moment. The only training loop."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.augment.pipeline import Augment, Pipeline, Throw
from iblurry.dice import Dice
from iblurry.engine.eager import Eager
from iblurry.engine.optimizer import forget, restore, state_of
from iblurry.errors import DivergedError, InputError, UnknownLabelError
from iblurry.memory import Batch, Memory, One
from iblurry.method import Method
from iblurry.network.build import build, fresh_bias, fresh_row
from iblurry.parts.workbench import Forward, Update, Workbench

Label = Hashable
Images = Tensor | NDArray[np.uint8]


class Learner:
    """One network, one memory, one method; final. What differs between methods are the parts.

    `classes` is the number of head rows, or the labels that may come; `memory` is the budget K of samples kept.

    >>> from iblurry.methods.er import er
    >>> learner = Learner(er(), image=(1, 8, 8), classes=["cat", "dog"], memory=20, network="mlp")
    >>> learner.observe(np.zeros((1, 8, 8), dtype=np.uint8), "cat")
    >>> learner.predict(np.zeros((2, 1, 8, 8), dtype=np.uint8))
    ['cat', 'cat']
    """

    def __init__(
        self,
        method: Method,
        *,
        image: tuple[int, int, int],
        classes: int | Sequence[Label] = 100,
        memory: int = 500,
        network: str = "convnet",
        augment: Augment | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        seed: int = 1,
        engine: Eager | None = None,
    ) -> None:
        self.announced = None if isinstance(classes, int) else frozenset(classes)
        rows = classes if isinstance(classes, int) else len(classes)
        if rows < 1:
            raise InputError(f"classes={classes!r}: a learner needs at least one class.")
        self._check_budget(method, memory)
        self.engine = engine or Eager()
        device = self.engine.device
        dice = Dice(seed)
        self.image = image
        self.bench = Workbench(
            network=build(network, image, rows, dice=dice).to(device).eval(),
            memory=Memory(method.capacity(memory), image, device),
            pipeline=Pipeline(
                augment or Augment(),
                shape=image,
                mean=tuple(mean or [0.5] * image[0]),
                std=tuple(std or [0.25] * image[0]),
                device=device,
            ),
            dice=dice,
        )
        self.method = method.attach(self.bench)
        self.parts = dict(self.method.parts())
        self.measures = any(part.needs_losses for part in self.parts.values())
        body, head = self.bench.network.body_parameters(), self.bench.network.head_parameters()
        self.optimizer = method.optimizer.build([body, head] if method.schedule.parts_head else [body + head])
        self.gathered: list[One] = []
        self.credit = 0  # updates owed, in units of 1 / denominator of updates_per_sample
        self.loss = torch.zeros((), device=device)  # of the last update
        self._head_rows = torch.arange(rows, device=device)
        self._no_rows = torch.zeros(0, dtype=torch.int64, device=device)
        self._step = self.engine.compile(self._train)

    # ------------------------------------------------------------------------------------------------ learning

    def observe(self, image: Images, label: Label) -> None:
        """One labelled sample (uint8, (C, H, W)): meet its class, gather it, and take the updates that are due."""
        one = self._one(image, label)
        self.bench.seen += 1
        self.credit += self.method.pace.updates_per_sample.numerator
        if self.method.readout.claims(one):
            return
        self.gathered.append(one)
        if self.method.pace.store == "before":
            self._store(one)
        if len(self.gathered) == self.method.pace.gather:
            self._round()

    def end_task(self) -> None:
        """A task ended; parts that know tasks hear of it, the others do not."""
        for part in self.parts.values():
            part.on_boundary()

    def _one(self, image: Images, label: Label) -> One:
        pixels = self._pixels(image, self.image, "observe")
        row = self.bench.network.row_of(label)
        if row is None:
            row = self._meet(label)
        return One(pixels[None], self._head_rows[row : row + 1], row)

    def _meet(self, label: Label) -> int:
        """A class never seen before: parts hear of it, then its head row opens in place."""
        if self.announced is not None and label not in self.announced:
            names = ", ".join(sorted(map(repr, self.announced)))
            raise UnknownLabelError(
                f"The label {label!r} was never announced. Announced: {names}. Add it to `classes`."
            )
        net, dice = self.bench.network, self.bench.dice
        row = net.known
        if row < net.rows:  # a full head refuses in expose(), and nothing has changed then
            for part in self.parts.values():
                part.on_class(row)
        weight, bias = fresh_row(dice, row, net.features)
        if self.method.head.redraw_bias:
            bias = fresh_bias(dice, row, net.rows, net.features)
        net.expose(label, weight, bias)
        if self.method.head.moments == "forget":
            forget(self.optimizer, net.head_parameters())
        return row

    def _store(self, one: One) -> None:
        memory = self.bench.memory
        memory.offered += 1
        row = self.method.admission.place(one) if memory.full else memory.next_row()
        memory.write(row, one)
        self.method.admission.welcome(row, one)

    def _round(self) -> None:
        """The updates owed, on the gathered samples and the memory; then gathering starts again."""
        pace = self.method.pace
        gathered, self.gathered = self.gathered, []
        stream = self._together(gathered if pace.train_stream else [])
        updates, self.credit = divmod(self.credit, pace.updates_per_sample.denominator)
        for left in range(updates - 1, -1, -1):
            self._update(stream, last_of_round=left == 0)
        if pace.store == "after":
            for one in gathered:
                self._store(one)

    def _update(self, stream: Batch, *, last_of_round: bool) -> None:
        """The host's half of an update: draw rows, throw the dice, set the rate."""
        bench, method = self.bench, self.method
        size = bench.memory.size
        drawn = {place: self._draw(place, min(part.draws, size)) for place, part in self.parts.items() if part.draws}
        throw = bench.pipeline.throw(bench.dice, bench.updates, len(stream.labels) + method.rehearsal.joins(size))
        for group, rate in zip(
            self.optimizer.param_groups, (method.schedule.now, method.schedule.head_now), strict=False
        ):
            group["lr"] = rate
        bench.updates += 1
        measure = self.measures and bench.updates % method.pace.measure_every == 0
        rows, losses = self._step(stream, drawn, throw, measure)
        method.schedule.advance(Update(rows, losses, last_of_round))

    def _draw(self, place: str, count: int) -> Tensor:
        bench = self.bench
        rows = bench.dice.distinct(f"{place} draws", bench.updates, count, among=bench.memory.size)
        return self.engine.stage(torch.tensor(rows, dtype=torch.int64))

    def _train(
        self, stream: Batch, drawn: dict[str, Tensor], throw: Throw, measure: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The device's half of an update. Tensors only: no value is read, so it can run as a captured graph."""
        bench, method = self.bench, self.method
        net = bench.network
        rows = method.rehearsal.choose(stream, drawn.get("rehearsal", self._no_rows))
        batch = _join(stream, bench.memory.read(rows))
        images = bench.pipeline.train(batch.images, throw)
        net.train()
        partners = batch.labels.index_select(0, throw.partner) if throw.mixes else None
        forward = Forward(images, net(images), batch.labels, partners, throw.lam)
        loss = functools.reduce(torch.add, [term.loss(forward) for term in method.terms])
        self.optimizer.zero_grad()
        loss.backward()
        for i, rule in enumerate(method.gradient):
            rule.adjust(drawn.get(f"gradient.{i}", self._no_rows))
        self.optimizer.step()
        self.loss = loss.detach()
        with torch.no_grad():
            losses = bench.memory_losses() if measure else None
            for part in self.parts.values():
                part.on_update(Update(rows, losses))
        return rows, losses

    # ------------------------------------------------------------------------------------------------ answering

    def logits(self, images: Images) -> Tensor:
        """The answer to plain images (uint8, (B, C, H, W)), one column per head row; learning is not touched."""
        if not self.bench.network.known:
            raise InputError("Nothing was learnt yet, so there is nothing to answer; observe a sample first.")
        return self.method.readout.logits(self._pixels(images, (-1, *self.image), "predict"))

    def probabilities(self, images: Images) -> Tensor:
        """(B, classes met so far), in the order of `labels`."""
        return self.logits(images)[:, : self.bench.network.known].softmax(1)

    def predict(self, images: Images) -> list[Label]:
        """The most likely label of each image."""
        return [self.labels[row] for row in self.logits(images).argmax(1).tolist()]

    @property
    def labels(self) -> list[Label]:
        """The classes met so far, in the order they came."""
        return self.bench.network.labels

    def check(self) -> None:
        """Raises DivergedError where the loss is no number any more; it never becomes one again."""
        if not self.loss.isfinite():
            raise DivergedError(
                f"The loss is {float(self.loss)} after {self.bench.updates} updates, at sample {self.bench.seen}; "
                f"a lower learning rate (schedule.rate, now {self.method.schedule.now:.3g}) usually helps."
            )

    # ------------------------------------------------------------------------------------------------ remembering

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resume needs, by reference: save or copy it before the next sample."""
        pixels = self._together(self.gathered)
        return {
            "network": dict(self.bench.network.state_dict()),
            "labels": list(self.labels),
            "optimizer": state_of(self.optimizer),
            "memory": self.bench.memory.state_dict(),
            "parts": {place: part.state_dict() for place, part in self.parts.items()},
            "gathered": {"images": pixels.images, "labels": pixels.labels},
            "counters": {"seen": self.bench.seen, "updates": self.bench.updates, "credit": self.credit},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken, bit for bit."""
        self.bench.network.load_state_dict(state["network"])
        self.bench.network.labels[:] = state["labels"]
        restore(self.optimizer, state["optimizer"])
        self.bench.memory.load_state_dict(state["memory"])
        for place, part in self.parts.items():
            part.load_state_dict(state["parts"][place])
        images, labels = state["gathered"]["images"], state["gathered"]["labels"]
        self.gathered = [One(i[None], n[None], int(n)) for i, n in zip(images, labels, strict=True)]
        counters = state["counters"]
        self.bench.seen, self.bench.updates, self.credit = counters["seen"], counters["updates"], counters["credit"]

    # ------------------------------------------------------------------------------------------------ checking

    def _together(self, samples: list[One]) -> Batch:
        if not samples:
            return Batch(self.bench.memory.images[:0], self.bench.memory.labels[:0])
        return Batch(torch.cat([one.images for one in samples]), torch.cat([one.labels for one in samples]))

    def _pixels(self, images: Images, shape: tuple[int, ...], verb: str) -> Tensor:
        pixels = torch.as_tensor(images)
        fits = pixels.ndim == len(shape) and all(
            want in (-1, have) for want, have in zip(shape, pixels.shape, strict=False)
        )
        if not fits or pixels.dtype != torch.uint8:
            want = str(shape).replace("-1", "any")
            raise InputError(f"{verb} takes uint8 pixels of shape {want}, not {pixels.dtype} {tuple(pixels.shape)}.")
        return self.engine.stage(pixels)

    @staticmethod
    def _check_budget(method: Method, budget: int) -> None:
        need = max(1, method.rehearsal.joins(sys.maxsize))
        if method.capacity(budget) < need:
            raise InputError(
                f"memory={budget} is too small for {method.name}: {method.holds} samples wait outside the memory and a "
                f"batch takes {need} out of it, so the least is {method.holds + need}."
            )


def _join(stream: Batch, memory: Batch) -> Batch:
    """Streamed samples first."""
    if not len(stream.labels):
        return memory
    return Batch(torch.cat([stream.images, memory.images]), torch.cat([stream.labels, memory.labels]))
