"""Milliseconds of an update by stage, each timed alone as a captured step, on a learner in the middle of its stream.

Timing the stages changes the learner's weights: afterwards it is of no further use.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.floor import floors
from benchmarks.gpu.setup import BenchmarkSetup
from benchmarks.gpu.timing import CallTime, peak_memory_gb, time_query, timed
from iblurry.augment.pipeline import AugmentParams
from iblurry.data.dataset import Dataset
from iblurry.engine.eager import Eager
from iblurry.engine.graph import STEADY
from iblurry.engine.optimizer_state import set_lr
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.learner.learner import Learner
from iblurry.learner.trainer import Trainer
from iblurry.parts.context import Drawn, Update
from iblurry.parts.memory import Batch, Sample
from iblurry.parts.part import Part
from iblurry.streams.iterator import StreamItem, StreamIterator

STORED = 64  # samples that are stored in turn when insertion is timed
SPARE = 300  # samples left for the stages after those timed, the stored ones included
UPDATES = 60  # after which both forms of a batch, mixed or not, are surely captured
TRIES = 500  # updates among which one with a full and mixed batch is found


def measure_costs(method: str, *, setup: BenchmarkSetup, samples: int, rate: float) -> dict[str, Any]:
    """A row of the report: milliseconds of a sample, its stages and a query, peak memory, and the arithmetic floor.

    Peak memory is that of the process, so each method is measured in its own; see `map_in_processes`.
    """
    data, engine = setup.load(), setup.engine("compiled")
    with engine.cuda_stream():
        warm = warm_up(method, setup, data, engine, samples=samples)
        sample = time_per_sample(warm, samples)
        query = time_query(warm.learner, data)
        peak = peak_memory_gb(engine.device)  # before the stages, whose captures are not the learner's
        spent = time_stages(warm, times=max(1, samples // 5))
    floor = floors(method, setup, data, rate)
    return {
        "method": method,
        "ms a sample": sample.whole,
        "host ms a sample": sample.host,
        "stages": spent,
        "ms a query": query["ms"],
        "questions": query["questions"],
        "peak GB": peak,
        "floor ms": floor,
        "fractions": {
            "sample": floor["sample"] / sample.whole if floor["sample"] else None,
            "query": floor["10,000 images"] * query["questions"] / 10_000 / query["ms"],
        }
        | {name: floor[name] / spent[name] for name in ("forward and backward", "memory losses") if name in spent},
    }


@dataclass
class WarmLearner:
    """A learner with all classes seen, a full memory, a task behind it and captured steps; and its next samples."""

    learner: Learner
    samples: Iterator[StreamItem]

    def observe_next(self) -> None:
        sample = next(self.samples)
        self.learner.observe(sample.image, sample.label)


def warm_up(method: str, setup: BenchmarkSetup, data: Dataset, engine: Eager, *, samples: int) -> WarmLearner:
    """A warm learner, ready for so many samples to be timed."""
    experiment = setup.experiment(method)
    order = experiment.order(data)
    fill, more = setup.memory, _samples_until_captured(experiment)
    if len(data.classes) + fill + more + samples + SPARE > len(order):
        raise InputError(
            f"{method} needs {fill} samples to fill its memory, {more} to be steady and {SPARE} for its stages; "
            f"{setup.dataset!r} has {len(order)}, so {samples} cannot be timed: give fewer --samples or --memory."
        )
    learner = experiment.learner(data, engine)
    for label, name in enumerate(data.classes):
        first = int(np.flatnonzero(data.train.labels == label)[0])
        learner.observe(data.train.images[first], name)
    warm = WarmLearner(learner, iter(StreamIterator(data, order)))
    for _ in range(fill):
        warm.observe_next()
    learner.end_task()  # what some methods do from the second task on is part of their cost
    for _ in range(more):
        warm.observe_next()
    return warm


def time_per_sample(warm: WarmLearner, samples: int) -> CallTime:
    """Of a sample with its updates."""
    return timed(warm.observe_next, samples, warm.learner.engine.device)


def _samples_until_captured(experiment: Experiment) -> int:
    updates = experiment.method.pace.updates_per_sample
    return math.ceil(UPDATES / updates) if updates else 0


def time_stages(warm: WarmLearner, *, times: int) -> dict[str, float]:
    """Milliseconds by stage; of an update of the refit where nothing is learnt online.

    "step" is the whole update, "host" the time to enqueue it, "device" its captured half alone; a mixed batch.
    """
    learner = warm.learner
    device = learner.engine.device
    trainer = trainer_of(learner)
    given = typical_inputs(trainer, warm)
    result = trainer._step(*given)

    def update() -> None:
        trainer.update(given.stream, last_of_round=True)

    for _ in range(4 * STEADY):  # mixed or not: both forms must be captured
        update()
    step = timed(update, times, device)
    spent = {"step": step.whole, "host": step.host}
    spent["device"] = timed(lambda: trainer._step(*given), times, device).whole
    spent["insertion"] = _time_insertion(warm, times)
    spent["drawing"] = _time_drawing(trainer, given, result, times)
    for stage in device_stages(trainer, given):
        run = learner.engine.compile(stage.step)
        for _ in range(STEADY + 2):
            run(*stage.args)
        spent[stage.name] = timed(functools.partial(run, *stage.args), times, device).whole
    return spent


def _stored(learner: Learner, one: StreamItem) -> Sample:
    """The sample as the memory takes it in, of a class that was met."""
    known = learner.context.network.row_of(one.label)
    row = learner.meet(one.label) if known is None else known
    return Sample(learner.encode(one.image[None]).values, torch.tensor([row], device=learner.engine.device), row)


def _time_insertion(warm: WarmLearner, times: int) -> float:
    """As the learner does it; a memory that keeps everything has only so much room."""
    learner, memory = warm.learner, warm.learner.context.memory
    turn = itertools.cycle([_stored(learner, one) for one in itertools.islice(warm.samples, STORED)])
    room = memory.capacity - memory.size if learner.method.admission.keeps_all else times + STEADY
    untimed = min(STEADY, room // 2)
    for _ in range(untimed):
        learner._store(next(turn))
    return timed(lambda: learner._store(next(turn)), min(times, room - untimed), learner.engine.device).whole


def _time_drawing(trainer: Trainer, given: StepInputs, result: Any, times: int) -> float:
    """The host's half: an update whose device's half is left out."""
    step = trainer._step
    trainer._step = lambda *args: result
    try:
        return timed(lambda: trainer.update(given.stream, last_of_round=False), times, trainer.engine.device).whole
    finally:
        trainer._step = step


class StepInputs(NamedTuple):
    """What the host hands to the device for one update."""

    stream: Batch
    drawn: dict[str, Drawn]
    params: AugmentParams
    measure: bool


class Stage(NamedTuple):
    """A part of the device's half; it takes at least one tensor, as a captured step must."""

    name: str
    step: Callable[..., Any]
    args: tuple[Any, ...]


def trainer_of(learner: Learner) -> Trainer:
    if learner.method.pace.updates_per_sample:
        return learner.trainer
    return learner.refitter._trainer(True, False)  # a fresh network, as these methods train


def typical_inputs(trainer: Trainer, warm: WarmLearner) -> StepInputs:
    """The inputs of an update whose batch is full and mixed, recorded on their way to the device."""
    learner = warm.learner
    pace, online = learner.method.pace, trainer is learner.trainer
    batch = (pace.stream_batch if online and pace.train_stream else 0) + trainer.training.rehearsal.joins(sys.maxsize)
    caught: list[StepInputs] = []
    step = trainer._step

    def catching(*args: Any) -> Any:
        caught.append(StepInputs(*args))
        return step(*args)

    nothing = Batch(learner.context.memory.images[:0], learner.context.memory.labels[:0])
    trainer._step = cast(Any, catching)
    try:
        for _ in range(TRIES):
            if online:
                warm.observe_next()
            else:
                trainer.update(nothing, last_of_round=True)
            for given in caught:
                if given.params.mixes and len(given.params.partner) == batch:
                    return given
            caught.clear()
    finally:
        trainer._step = step
    raise AssertionError(f"no batch of {batch} was mixed in {TRIES} tries")


def device_stages(trainer: Trainer, given: StepInputs) -> Iterator[Stage]:
    """The lines of `Trainer._on_device` in their order, stage by stage."""
    context, training, optimizer = trainer.context, trainer.training, trainer.optimizer
    stream, drawn, params, measure = given
    listens = bool(context.shared) or any(type(part).on_update is not Part.on_update for part in trainer.parts.values())

    def choosing(stream: Batch, drawn: dict[str, Drawn]) -> tuple[Tensor, Batch]:
        rows = training.rehearsal.choose(
            stream, drawn.get("rehearsal", trainer._nothing)._replace(augment_params=params)
        )
        return rows, stream.joined(context.memory.read(rows))

    def augmentation(images: Tensor, params: AugmentParams) -> Tensor:
        return context.pipeline.train(images, params)

    def learning(images: Tensor, batch: Batch, rows: Tensor, params: AugmentParams) -> Tensor:
        loss, _ = trainer.passes(images, batch, rows, params)
        for term in training.terms:
            term.add_gradient()
        return loss.detach()

    def adjusting(labels: Tensor, drawn: dict[str, Drawn]) -> None:
        for i, rule in enumerate(training.gradient):
            rule.prepare(drawn.get(f"gradient.{i}", trainer._nothing))
            rule.adjust(drawn.get(f"gradient.{i}", trainer._nothing))

    def stepping(labels: Tensor) -> None:
        optimizer.step()

    def measuring(labels: Tensor) -> Tensor:
        return context.memory_losses()

    def telling(update: Update) -> None:
        with torch.no_grad():
            trainer.tell(update)

    yield Stage("choosing", choosing, (stream, drawn))
    rows, batch = choosing(stream, drawn)
    yield Stage("augmentation", augmentation, (batch.images, params))
    images = augmentation(batch.images, params)
    yield Stage("forward and backward", learning, (images, batch, rows, params))
    if training.gradient:
        yield Stage("adjusting", adjusting, (batch.labels, drawn))
    for group in optimizer.param_groups:
        set_lr(group, 0.0)  # the same gradient over and over would make the weights diverge
    yield Stage("optimizer", stepping, (batch.labels,))
    if measure:
        yield Stage("memory losses", measuring, (batch.labels,))
    if listens:  # torch warns of an empty capture
        with torch.no_grad(), torch.enable_grad():
            _, forward = trainer.passes(images, batch, rows, params)
        update = Update(rows, context.memory_losses() if measure else None, forward=forward)
        yield Stage("telling", telling, (update,))
