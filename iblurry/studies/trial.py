"""A trial: a moment of a run, timed where the run will be, and how long a whole run will take by it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from iblurry.compute import ComputeCounter, Passes
from iblurry.cost import cost
from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.engine.devices import make_engine
from iblurry.engine.threads import torch_threads
from iblurry.errors import InputError
from iblurry.experiment.environment import Hardware, describe_place
from iblurry.experiment.experiment import Experiment
from iblurry.methods import method as method_named
from iblurry.network.flops import BACKWARD, flops
from iblurry.streams.iterator import StreamItem, StreamIterator

ENOUGH = 0.5  # seconds of each measurement
FILLING = 2.0  # seconds at most to fill the memory before it
LONG = 30.0  # seconds: steps that would take longer are not tried, and go as fast as answers
WARM_UP = 20  # updates before it on a GPU, where the first ones compile and capture
QUESTIONS = 64  # images asked about at first on a GPU, one on a CPU; twice as many until they take long enough
REPEATS = 3  # answers, of which the median counts
PLAIN_MEMORY = 100  # samples, of a learner that only answers


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What was measured of a method on a device, with a full memory where that fills in time, and after a task's end.

    A step is an update, or a sample where a method takes no updates but those of refits.
    """

    steps: int
    seconds: float  # that these steps took, with all that belongs to them
    flops: float  # of these steps
    answering: float  # FLOP/s of answers
    refitting: float | None = None  # FLOP/s of refits; None: there were none
    preparing: float = 0.0  # seconds of the readout before it answers, but for refits

    def run_seconds(self, *, steps: float, moments: int, training: float, queries: float) -> float:
        """Of a whole run of so many steps, moments at which it is asked, and operations.

        Steps last as long as those timed. What training takes beyond their operations are refits, or passes of large
        batches, such as the losses of a memory that was not full, and goes as fast as refits or answers do.
        """
        beyond = max(0.0, training - steps * self.flops / self.steps)
        extra = beyond / (self.refitting or self.answering) + queries / self.answering
        return steps * self.seconds / self.steps + moments * self.preparing + extra


def try_apart(
    jobs: Sequence[tuple[Experiment, Hardware]], data_home: Path | None, places: int = 1
) -> Iterator[Trial | None]:
    """A trial of each experiment on its hardware, in their order; None where it fails, as the run will say why.

    In processes of their own, as many as will run side by side, as they make each other slower. What they take of a
    GPU's memory is free again afterwards.
    """
    with _children(places) as children:
        for trial in [children.submit(_try_here, *job, data_home) for job in jobs]:
            yield None if trial.exception() else trial.result()


def place_of(hardware: Hardware) -> dict[str, Any] | None:
    """Machine, device, precision and threads of runs on such hardware, as their environment.json will have them.

    None where there is no such device, which the runs will say.
    """
    if hardware.device == "cpu":
        return _place(hardware)
    with _children(1) as child:  # asking a GPU for its name takes some of its memory until the process ends
        place = child.submit(_place, hardware)
        return None if place.exception() else place.result()


def _children(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


def _place(hardware: Hardware) -> dict[str, Any]:
    engine = make_engine(hardware.device, hardware.precision)
    return describe_place(engine, hardware.threads or torch.get_num_threads())


@lru_cache(maxsize=1)
def _load(dataset: str, data_home: Path | None) -> Dataset:
    return load(dataset, data_home)


def _try_here(experiment: Experiment, hardware: Hardware, data_home: Path | None) -> Trial:
    return measure(experiment, hardware, _load(experiment.dataset, data_home))


def measure(experiment: Experiment, hardware: Hardware, data: Dataset) -> Trial:
    """A trial in this process."""
    with torch_threads(hardware.threads):
        return _Stopwatch(experiment, hardware, data).trial()


class _Enough(Exception):  # noqa: N818  no error: a refit was timed for long enough
    """Leaves a refit."""


class _Stopwatch:
    """One learner of an experiment, and the clock."""

    def __init__(self, experiment: Experiment, hardware: Hardware, data: Dataset) -> None:
        self.experiment, self.hardware, self.data = experiment, hardware, data
        self.engine = make_engine(hardware.device, hardware.precision)
        self.learner = experiment.learner(data, self.engine)
        self.per_image = flops(experiment.network, data.shape, len(data.classes), freeze=experiment.freeze)
        # a method that answers with its network and does nothing besides
        self.plain = replace(experiment, method=method_named("er"), memory=PLAIN_MEMORY + len(data.classes), seed=1)
        self.warm_up = 0 if self.engine.device.type == "cpu" else WARM_UP

    def trial(self) -> Trial:
        order, answering = self.experiment.order(self.data), _answering(self.plain, self.hardware, self.data)
        if self.least_operations() > LONG * answering:
            return Trial(steps=1, seconds=0.0, flops=0.0, answering=answering)
        with self.engine.cuda_stream(), closing(StreamIterator(self.data, order, workers=0)) as stream:
            samples = iter(stream)
            self._fill(samples, len(stream) // 2)
            if self.learner.method.refit is None and len(order.tasks) > 1:
                self.learner.end_task()  # some do more from then on
            steps, seconds, operations = self._learn(samples)
            return Trial(
                steps=steps,
                seconds=seconds,
                flops=operations,
                refitting=self._refit() if self.learner.method.refit else None,
                answering=answering,
                preparing=0.0 if self.learner.method.refit else self._prepare(),
            )

    def least_operations(self) -> float:
        """Of the steps that a trial takes at least: two rounds, or two updates of a refit; in FLOP."""
        method, classes = self.experiment.method, len(self.data.classes)
        passes = cost(method, self.learner.context.budget, classes=classes).sample * method.pace.stream_batch
        if method.refit is not None:
            batch = method.refit.rehearsal.joins(sys.maxsize)
            passes += Passes(batch, batch)
        return 2.0 * self.per_image * (passes.forward + BACKWARD * passes.backward)

    def _fill(self, samples: Iterator[StreamItem], most: int) -> None:
        """Offers up to so many samples to the memory, whose updates are left out."""
        learner, memory = self.learner, self.learner.context.memory
        end = time.monotonic() + FILLING
        while memory.size < memory.capacity and learner.context.seen < most and time.monotonic() < end:
            learner.credit -= learner.method.pace.updates_of(learner.context.seen + 1)
            self.observe(samples)

    def _prepare(self) -> float:
        """Seconds."""
        began = self._now()
        self.learner.prepare()
        return self._now() - began

    def _learn(self, samples: Iterator[StreamItem]) -> tuple[int, float, float]:
        """Steps, seconds and operations."""
        learner, pace = self.learner, self.learner.method.pace

        def steps() -> int:
            return learner.context.updates if pace.updates_per_sample else learner.context.seen

        first = steps()
        while steps() <= first + self.warm_up and self.observe(samples):  # at least a round
            pass
        before, operations, began = steps(), self._operations(), self._now()
        while steps() == before or learner.stream_batch or time.perf_counter() - began < ENOUGH:
            if not self.observe(samples):
                break
        if steps() == before:
            raise InputError("The stream is too short to time a step of it.")
        seconds = self._now() - began
        return steps() - before, seconds, self._operations() - operations

    def _refit(self) -> float | None:
        """FLOP/s of a refit, which is left once it has taken long enough; None where it did not begin."""
        began: tuple[float, float] | None = None  # seconds and operations, once it is warm

        def on_refit(done: int, total: int) -> None:
            nonlocal began
            if began is None and done > self.warm_up:
                began = self._now(), self._operations()
            elif began is not None and time.perf_counter() - began[0] > ENOUGH:
                raise _Enough

        self.learner.on_refit = on_refit
        with suppress(_Enough):
            self.learner.end_task()
            self.learner.prepare()
        return None if began is None else (self._operations() - began[1]) / (self._now() - began[0])

    def answer(self, images: NDArray[np.uint8]) -> tuple[float, float]:
        """Seconds and operations."""
        began, before = self._now(), self._operations()
        self.learner.logits(images)
        return self._now() - began, self._operations() - before

    def observe(self, samples: Iterator[StreamItem]) -> bool:
        """Learns the next sample, if there is one."""
        if (sample := next(samples, None)) is not None:
            self.learner.observe(sample.image, sample.label)
        return sample is not None

    def _now(self) -> float:
        """Seconds, once the device has done what it was given."""
        if self.engine.device.type != "cpu":
            torch.cuda.synchronize(self.engine.device)
        return time.perf_counter()

    def _operations(self) -> float:
        """Counted so far, in FLOP."""
        context, refit = self.learner.context, self.learner.refitter.trainer
        counters = [context.spent, context.queries]
        if refit is not None and refit.context.spent is not context.spent:
            counters.append(refit.context.spent)
        return float(self.per_image * sum(map(_passes, counters)))


def _passes(counter: ComputeCounter) -> int:
    return sum(counter.forward.values()) + BACKWARD * sum(counter.backward.values())


@lru_cache(maxsize=8)
def _answering(experiment: Experiment, hardware: Hardware, data: Dataset) -> float:
    """FLOP/s of answers of an experiment's network, in batches that are large enough for the device."""
    watch = _Stopwatch(experiment, hardware, data)
    images, count = data.test.images, 1 if watch.engine.device.type == "cpu" else QUESTIONS
    with watch.engine.cuda_stream(), closing(StreamIterator(data, experiment.order(data), workers=0)) as stream:
        watch.observe(iter(stream))
        while True:
            watch.answer(images[:count])  # to so many for the first time, which may compile
            counted = [watch.answer(images[:count]) for _ in range(REPEATS)]
            if count >= len(images) or sum(seconds for seconds, _ in counted) > ENOUGH:
                return median(operations / seconds for seconds, operations in counted)
            count *= 2
