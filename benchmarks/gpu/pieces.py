"""An update taken apart: what the host hands over, and the device's half in pieces that run one by one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from benchmarks.gpu.walk import Walk
from iblurry.augment.pipeline import AugmentParams
from iblurry.engine.optimizer import set_lr
from iblurry.learner import Learner
from iblurry.memory import Batch
from iblurry.parts.context import Drawn, Forward, Update
from iblurry.parts.part import Part
from iblurry.trainer import Trainer, _join

TRIES = 500  # updates among which one of full size and mixed is found


class Given(NamedTuple):
    """What the host hands to the device for one update."""

    stream: Batch
    drawn: dict[str, Drawn]
    params: AugmentParams
    measure: bool


class Stage(NamedTuple):
    """A piece of the device's half; it takes a tensor at least, as a captured step must."""

    name: str
    step: Callable[..., Any]
    args: tuple[Any, ...]


def trainer_of(learner: Learner) -> Trainer:
    if learner.method.pace.updates_per_sample:
        return learner.trainer
    return learner.refitter._trainer(True, False)  # a fresh network, as these methods train


def typical(trainer: Trainer, walk: Walk) -> Given:
    """Of an update whose batch is full and mixed, caught on its way to the device."""
    learner = walk.learner
    pace, online = learner.method.pace, trainer is learner.trainer
    batch = (pace.stream_batch if online and pace.train_stream else 0) + trainer.training.rehearsal.joins(sys.maxsize)
    caught: list[Given] = []
    step = trainer._step

    def catching(*args: Any) -> Any:
        caught.append(Given(*args))
        return step(*args)

    nothing = Batch(learner.context.memory.images[:0], learner.context.memory.labels[:0])
    trainer._step = cast(Any, catching)
    try:
        for _ in range(TRIES):
            if online:
                walk.meet()
            else:
                trainer.update(nothing, last_of_round=True)
            for given in caught:
                if given.augment_params.mixes and len(given.augment_params.partner) == batch:
                    return given
            caught.clear()
    finally:
        trainer._step = step
    raise AssertionError(f"no batch of {batch} was mixed in {TRIES} tries")


def on_device(trainer: Trainer, given: Given) -> Iterator[Stage]:
    """The lines of `Trainer._on_device` in their order, stage by stage."""
    context, training, network, optimizer = (
        trainer.context,
        trainer.training,
        trainer.context.network,
        trainer.optimizer,
    )
    stream, drawn, params, measure = given
    listeners = [part for part in trainer.parts.values() if type(part).on_update is not Part.on_update]

    def choosing(stream: Batch, drawn: dict[str, Drawn]) -> tuple[Tensor, Batch]:
        rows = training.rehearsal.choose(
            stream, drawn.get("rehearsal", trainer._nothing)._replace(augment_params=params)
        )
        return rows, _join(stream, context.memory.read(rows))

    def augmentation(images: Tensor, params: AugmentParams) -> Tensor:
        return context.pipeline.compiled.get(len(images), context.pipeline.train)(images, params)

    def learning(images: Tensor, labels: Tensor, params: AugmentParams) -> Tensor:
        partners = labels.index_select(0, params.partner) if params.mixes else None
        network.train(not trainer.frozen_norm)
        forward = Forward(images, network(images), labels, partners, params.lam, streamed, rows)
        loss = functools.reduce(torch.add, [term.loss(forward) for term in training.terms])
        optimizer.zero_grad()
        loss.backward()
        return loss.detach()

    def adjusting(labels: Tensor, drawn: dict[str, Drawn]) -> None:
        for i, rule in enumerate(training.gradient):
            rule.adjust(drawn.get(f"gradient.{i}", trainer._nothing))

    def stepping(labels: Tensor) -> None:
        optimizer.step()

    def measuring(labels: Tensor) -> Tensor:
        return context.memory_losses()

    def telling(labels: Tensor, rows: Tensor, losses: Tensor | None) -> None:
        with torch.no_grad():
            for part in listeners:
                part.on_update(Update(rows, losses))

    yield Stage("choosing", choosing, (stream, drawn))
    rows, batch = choosing(stream, drawn)
    yield Stage("augmentation", augmentation, (batch.images, params))
    images = augmentation(batch.images, params)
    streamed = len(stream.labels)
    yield Stage("forward and backward", learning, (images, batch.labels, params))
    if training.gradient:
        yield Stage("adjusting", adjusting, (batch.labels, drawn))
    for group in optimizer.param_groups:
        set_lr(group, 0.0)  # the same gradient again and again would lead the weights astray
    yield Stage("optimizer", stepping, (batch.labels,))
    if measure:
        yield Stage("memory losses", measuring, (batch.labels,))
    if listeners:  # a capture of nothing is worth a warning to torch
        yield Stage("telling", telling, (batch.labels, rows, context.memory_losses() if measure else None))
