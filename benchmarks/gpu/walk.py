"""A learner in the middle of its stream: every class met, the memory full, a task over, its steps captured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.gpu.subject import Subject
from benchmarks.gpu.timing import Cost, timed
from iblurry.data.dataset import Dataset
from iblurry.engine.eager import Eager
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.learner import Learner
from iblurry.streams.stream import Stream, StreamItem

ONES = 64  # samples that are stored in turn when insertion is timed
SPARE = 300  # samples left for stages after those timed, these among them
UPDATES = 60  # after which both forms of a batch, mixed or not, are surely captured


@dataclass
class Walk:
    """A learner and the samples it has still to meet."""

    learner: Learner
    samples: Iterator[StreamItem]

    def meet(self) -> None:
        sample = next(self.samples)
        self.learner.observe(sample.image, sample.label)


def walk(method: str, subject: Subject, data: Dataset, engine: Eager, *, samples: int) -> Walk:
    """Ready for so many samples to be timed."""
    one = subject.experiment(method)
    order = one.order(data)
    fill, more = subject.memory, _more(one)
    if len(data.classes) + fill + more + samples + SPARE > len(order):
        raise InputError(
            f"{method} needs {fill} samples to fill its memory, {more} to be steady and {SPARE} for its stages; "
            f"{subject.dataset!r} has {len(order)}, so {samples} cannot be timed: give fewer --samples or --memory."
        )
    learner = one.learner(data, engine)
    for label, name in enumerate(data.classes):
        first = int(np.flatnonzero(data.train.labels == label)[0])
        learner.observe(data.train.images[first], name)
    walk = Walk(learner, iter(Stream(data, order)))
    for _ in range(fill):
        walk.meet()
    learner.end_task()  # what some methods do from the second task on is part of their cost
    for _ in range(more):
        walk.meet()
    return walk


def per_sample(walk: Walk, samples: int) -> Cost:
    """What a sample costs, with the updates it earns."""
    meet: Callable[[], None] = walk.meet
    return timed(meet, samples, walk.learner.engine.device)


def _more(one: Experiment) -> int:
    updates = one.method.pace.updates_per_sample
    return math.ceil(UPDATES / updates) if updates else 0
