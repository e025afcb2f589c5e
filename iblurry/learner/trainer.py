"""The trainer: takes one update. The host draws random numbers and sets the learning rate; the device computes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from iblurry.augment.pipeline import AugmentParams
from iblurry.engine.mlp_passes import MLPPasses
from iblurry.engine.optimizer_state import reset_state, restore, set_lr, state_of, zeros_like_state
from iblurry.methods.method import Pace, Training
from iblurry.parts.context import Context, Drawn, Forward, Update
from iblurry.parts.gradient.gradient import GradientRule
from iblurry.parts.memory import Batch
from iblurry.parts.part import Part
from iblurry.parts.terms.term import CrossEntropy, Term, cross_entropy_by_hand

BLOCK = 64  # updates whose rows are drawn together


class Trainer:
    """One training step, the same for every method: what differs is asked of the parts, line by line of `_on_device`.

    Parameters
    ----------
    training : Training
        The attached parts and the optimizer.
    context : Context
        What the parts share.
    streamed : int
        Samples of the stream in each batch.
    pace : Pace, optional
        When the memory's loss is measured, and of how many rows, where a part asks for it.
    frozen_norm : bool
        Whether the network trains in eval mode, so that batch norm keeps its statistics.
    """

    def __init__(
        self,
        training: Training,
        context: Context,
        *,
        streamed: int = 0,
        pace: Pace | None = None,
        frozen_norm: bool = False,
    ) -> None:
        self.training, self.context, self.engine = training, context, context.engine
        self.pace, self.frozen_norm = pace or Pace(), frozen_norm
        self.parts = dict(training.parts())
        self.measures = any(part.needs_losses for part in self.parts.values())
        context.network.answers_often |= self.measures
        self.needs_plain = any(term.needs_plain for term in training.terms)
        self.unmixed_last = any(term.unmixed_last for term in training.terms)
        network = context.network
        overlap = [
            rule.overlaps_forward for rule in training.gradient if type(rule).prepare is not GradientRule.prepare
        ]
        can_overlap = network.has_kernels and network.passes_can_overlap  # else a pass rounds the weights itself
        self.rules_overlap = can_overlap and bool(overlap) and all(overlap)
        self.terms_prepare = any(type(term).prepare is not Term.prepare for term in training.terms)
        is_cross_entropy = [type(term) for term in training.terms] == [CrossEntropy]
        self.mlp = MLPPasses(network) if is_cross_entropy and MLPPasses.fits(network) else None
        body, head = network.body_parameters(), network.head_parameters()
        groups = [body, head] if training.schedule.separate_head_lr else [body + head]
        self.optimizer = training.optimizer.start(groups, tensor_lr=training.schedule.lr_scale is not None)
        self.unscaled_lrs = [torch.zeros((), device=self.engine.device) for _ in groups]  # where `lr_scale` is used
        self.on_update: Callable[[], None] | None = None  # called after each update
        self.loss = torch.zeros((), device=self.engine.device)  # of the last update, written by the step
        self._begin()
        self._nothing = Drawn(torch.zeros(0, dtype=torch.int64, device=self.engine.device), None)
        self._compile()
        if size := streamed + training.rehearsal.joins(sys.maxsize):  # 0 where it only refits
            self.engine.expect_batch_size(context.network, context.pipeline, size)

    def _compile(self) -> None:
        is_capturable = self.context.pipeline.is_capturable and self.training.optimizer.is_capturable
        self._step = self.context.compile(self._on_device, self._graph_key, capture=is_capturable)

    def _begin(self) -> None:
        self.loss.zero_()
        self._lrs: tuple[float, float] | None = None  # that the optimizer has
        self._blocks: dict[str, RowBlock] = {}

    def restart(self) -> None:
        """Starts again as a new trainer would, but in place: steps captured before stay valid."""
        self._begin()
        self.forget()
        for shared in self.context.shared.values():
            shared.reset()
        for part in self.parts.values():
            part.restart()

    @property
    def lr(self) -> float:
        """The learning rate of the last update; never waits for the device."""
        return self.training.schedule.lr if self._lrs is None else self._lrs[0]

    def forget_head(self) -> None:
        """Resets the head's optimizer state."""
        self._forget(self.context.network.head_parameters())

    def forget(self) -> None:
        """Resets the whole optimizer state."""
        self._forget(list(self.context.network.trainable().values()))

    def _forget(self, parameters: Sequence[Tensor]) -> None:
        if reset_state(self.optimizer, self.training.optimizer, parameters):
            self._compile()  # a captured step would go on with the old buffers

    def optimizer_state(self) -> dict[str, Any]:
        """The optimizer's buffers and numbers: all that a checkpoint needs of it."""
        return state_of(self.optimizer)

    def zero_state(self, like: dict[str, Any]) -> dict[str, Any]:
        """The buffers that `like`, a state for a smaller head, has for each parameter, as zeros of its size now."""
        return zeros_like_state(self.optimizer, like)

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Continues from where `optimizer_state` was taken."""
        if restore(self.optimizer, self.training.optimizer, state):
            self._compile()

    def update(self, stream: Batch, *, last_of_round: bool, is_extra: bool = False) -> None:
        """Takes one update: the host's half.

        Parameters
        ----------
        stream : Batch
            Samples of the stream that are in the batch.
        last_of_round : bool
            Whether it is the last one that these samples earned.
        is_extra : bool
            Whether no sample earned it: nothing is measured, and the schedule does not move.
        """
        context, counters, training = self.context, self.context.counters, self.training
        drawn = {
            name: self._draw(name, part, len(stream.labels))
            for name, part in self.parts.items()
            if part.rows_per_update
        }
        joins = training.rehearsal.joins(len(drawn.get("rehearsal", self._nothing).rows))
        params = context.pipeline.draw_params(context.rng, counters.updates, len(stream.labels) + joins)
        lrs = (training.schedule.lr, training.schedule.head_lr)
        if lrs != self._lrs:
            for i, group in enumerate(self.optimizer.param_groups):  # the second only where separate
                set_lr(group, lrs[i])
                self.unscaled_lrs[i].fill_(lrs[i])
            self._lrs = lrs
        counters.lr = self.optimizer.param_groups[0]["lr"]
        counters.updates += 1
        context.network.meter.counter.updates += 1
        if last_of_round and self.unmixed_last:
            params = params._replace(mixes=False)
        measure = self.measures and not is_extra and counters.updates % self.pace.measure_every == 0
        rows, losses = self._step(stream, drawn, params, self._measured_rows() if measure else False)
        if not is_extra:
            training.schedule.step(Update(rows, losses, last_of_round))
        if self.on_update is not None:
            self.on_update()

    def _measured_rows(self) -> Tensor | bool:
        """The memory rows that are measured; True for all."""
        count, memory = self.pace.measure_rows, self.context.memory
        if count is None or count >= memory.size:
            return True
        return memory.window(self.context.updates // self.pace.rotate_every * max(1, count // 64), count)

    def _draw(self, name: str, part: Part, streamed: int) -> Drawn:
        """Rows for one part, and random crops and flips of its own where it needs them."""
        context, step = self.context, self.context.updates
        block = self._blocks.get(name)
        if block is None or not block.covers(step, context.memory.size):
            block = self._blocks[name] = RowBlock.draw(part, f"{name} draws", context)
        rows = block.rows[step - block.first]
        if not part.needs_augment_params:
            return Drawn(rows, None)
        return Drawn(rows, context.pipeline.draw_params(context.rng, step, streamed + len(rows), f"{name} dice"))

    def _on_device(
        self, stream: Batch, drawn: dict[str, Drawn], params: AugmentParams, measure: Tensor | bool
    ) -> tuple[Tensor, Tensor | None]:
        """The device's half. Tensors only: no value is read, so it can run as a captured graph."""
        context, training = self.context, self.training
        rows = training.rehearsal.choose(stream, drawn.get("rehearsal", self._nothing)._replace(augment_params=params))
        batch = stream.joined(context.memory.read(rows))
        params = self._leave_unmixed(params, len(rows), len(batch.labels))
        images = context.pipeline.train(batch.images, params)
        rules = [(rule, drawn.get(f"gradient.{i}", self._nothing)) for i, rule in enumerate(training.gradient)]
        with context.network.constant():
            (loss, forward), _ = self.engine.side_by_side(
                lambda: self.passes(images, batch, rows, params),
                [functools.partial(rule.prepare, rows_drawn) for rule, rows_drawn in rules],
                overlap=self.rules_overlap,
            )
        for term in training.terms:
            term.add_gradient()
        for rule, rows_drawn in rules:
            rule.adjust(rows_drawn)
        self._take_step()
        with torch.no_grad():
            losses = None if measure is False else context.memory_losses(None if measure is True else measure)
            self.tell(Update(rows, losses, forward=forward))
            self.loss.copy_(loss)
        return rows, losses

    def _leave_unmixed(self, params: AugmentParams, rows: int, images: int) -> AugmentParams:
        """Lets CutMix leave the last of so many images as they are, where a term asks for it."""
        unmixed = max(term.unmixed(rows) for term in self.training.terms) if params.mixes else 0
        return params.unmixed_from(images - unmixed) if unmixed else params

    def passes(self, images: Tensor, batch: Batch, rows: Tensor, params: AugmentParams) -> tuple[Tensor, Forward]:
        """The forward and the backward pass: the loss of a batch, whose gradients are set, and what it is of.

        Parameters
        ----------
        images : Tensor
            The batch's images, augmented.
        batch : Batch
            The batch as it is stored.
        rows : Tensor
            Memory rows of its last images.
        params : AugmentParams
            What the images were augmented with.
        """
        network, terms = self.context.network, self.training.terms
        partners = batch.labels.index_select(0, params.partner) if params.mixes else None
        plain = self.context.pipeline.plain(batch.images, params) if self.needs_plain else None
        network.train(not self.frozen_norm)
        (features, logits), prepared = self.engine.side_by_side(
            lambda: self._forward(images),
            [functools.partial(term.prepare, images, plain) for term in terms if self.terms_prepare],
        )
        streamed = len(batch.labels) - len(rows)
        forward = Forward(images, logits, batch.labels, partners, params.lam, streamed, rows, features, plain)
        if self.mlp is not None:
            loss, gradient = cross_entropy_by_hand(forward)
            self.mlp.backward(gradient)
            return loss, forward
        known = prepared or [None] * len(terms)
        losses = [term.loss(forward._replace(prepared=one)) for term, one in zip(terms, known, strict=True)]
        loss = functools.reduce(torch.add, losses)
        self.optimizer.zero_grad()
        with network.parallel_backward():
            loss.backward()
        return loss, forward

    def _forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with self.context.network.meter.counting("training", has_backward=True):
            return (self.mlp or self.context.network).forward_both(images)

    def _take_step(self) -> None:
        """The optimizer's step, at rates that the schedule scales on the device."""
        if (scale := self.training.schedule.lr_scale) is not None:
            for group, lr in zip(self.optimizer.param_groups, self.unscaled_lrs, strict=True):
                group["lr"].copy_(lr * scale)
        self.optimizer.step()

    def tell(self, update: Update) -> None:
        """Tells what parts share, then the parts, of an update."""
        for shared in self.context.shared.values():
            shared.on_update()
        for part in self.parts.values():
            part.on_update(update)

    def _graph_key(self) -> Hashable:
        """State of the host that the device's half depends on, besides its arguments."""
        return tuple([part.graph_key for part in self.parts.values()])


class RowBlock(NamedTuple):
    """The rows of the next updates, as long as the memory keeps its size: drawn and sent to the device together."""

    first: int  # update
    size: int  # of the memory
    rows: Sequence[Tensor]  # by update

    def covers(self, step: int, size: int) -> bool:
        return size == self.size and 0 <= step - self.first < len(self.rows)

    @classmethod
    def draw(cls, part: Part, purpose: str, context: Context) -> Self:
        first, size = context.updates, context.memory.size
        rows = [part.draw_rows(purpose, first, size)]
        while context.memory.full and len(rows) < BLOCK and len(rows[-1]) == len(rows[0]):
            rows.append(part.draw_rows(purpose, first + len(rows), size))
        if len(rows[-1]) != len(rows[0]):  # the last batch of an epoch
            del rows[-1]
        return cls(first, size, context.engine.to_device(torch.tensor(rows, dtype=torch.int64)).unbind())
