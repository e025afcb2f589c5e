"""An estimate before a run: how many floating-point operations its training will take."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iblurry.compute import Cost, Passes, Workload
from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.experiment.experiment import Experiment
from iblurry.learner.cost import measured_rows, workload
from iblurry.methods.method import Method
from iblurry.network.flops import BACKWARD, feature_flops, flops
from iblurry.network.registry import Image

STEPS = 2000  # in which a memory fills up at most
EPOCHS = "epochs"  # the field of a readout that refits


@dataclass(frozen=True, kw_only=True)
class DatasetSize:
    """What of a data set decides what a run costs."""

    samples: int  # to train on
    classes: int
    image: Image


DATASET_SIZES = {  # of the paper's data sets, so that nobody needs the images to plan
    "cifar10": DatasetSize(samples=50_000, classes=10, image=(3, 32, 32)),
    "cifar100": DatasetSize(samples=50_000, classes=100, image=(3, 32, 32)),
    "tinyimagenet": DatasetSize(samples=100_000, classes=200, image=(3, 64, 64)),
    "imagenet": DatasetSize(samples=1_281_167, classes=1000, image=(3, 224, 224)),
}


@functools.cache
def dataset_size(dataset: str, data_home: Path | None = None) -> DatasetSize:
    """Known of the paper's data sets; others are loaded, what was imported from `data_home`."""
    if dataset in DATASET_SIZES:
        return DATASET_SIZES[dataset]
    return size_of(load(dataset, data_home))


def size_of(data: Dataset) -> DatasetSize:
    """Returns the size of data that are loaded."""
    return DatasetSize(samples=len(data.train), classes=len(data.classes), image=data.shape)


def stream_length(experiment: Experiment, of: DatasetSize) -> int:
    """Samples of the whole stream, of which a run may take fewer."""
    return int(of.samples * experiment.share * (1 - experiment.validate))


def memory_budget(experiment: Experiment, of: DatasetSize) -> int:
    """Samples that the method may keep: the experiment's memory, or all that come."""
    there = stream_length(experiment, of)
    return min(there, experiment.samples or there) if experiment.method.admission.keeps_all else experiment.memory


@dataclass(frozen=True)
class ComputeEstimate:
    """What training takes in a whole run, in forward passes of one image.

    steady + rated * updates_per_sample + study * epochs. Tasks are taken to be of equal length. Left out: that an
    update in part earned is taken a few samples later, and that a readout may take some samples for itself.
    """

    steady: float  # whatever the pace: offers to the memory, ends of tasks
    rated: float  # at one update per sample, and as many times as many for early samples as the pace says
    study: float  # an epoch of every refit
    epochs: int | None  # None: never refitted
    earned: int  # updates at one update per sample, those of refits left out


def compute_estimate(experiment: Experiment, of: DatasetSize) -> ComputeEstimate:
    """Estimates a whole run; questions are not counted, refits to answer them are."""
    for component in experiment.components():
        component.refuse()
    return _compute_estimate(replace(experiment, seed=0), of)  # the same for every seed


@functools.lru_cache(maxsize=256)
def _compute_estimate(experiment: Experiment, of: DatasetSize) -> ComputeEstimate:
    there, budget = stream_length(experiment, of), memory_budget(experiment, of)
    method, samples = experiment.method, min(there, experiment.samples or there)
    capacity, pace = method.capacity(budget), method.pace
    tasks = getattr(experiment.stream, "tasks", 1) if experiment.stream.has_boundaries else 1
    ends = np.array([there * (task + 1) // tasks for task in range(tasks)])  # equal: only the data tell more
    ends = np.unique(np.minimum(ends, samples))
    stored = _offered(method, np.arange(1, samples + 1))
    known = _Costs(method, budget, of.classes)

    rounds = np.arange(pace.stream_batch, samples + 1, pace.stream_batch)  # the sample after which each is
    starts = rounds - pace.stream_batch
    offered = starts if pace.store_when == "after" else rounds
    early = np.clip(pace.early_samples - starts, 0, pace.stream_batch)  # samples of each round
    earned = pace.stream_batch + (pace.early_updates - 1) * early
    rated = sum(
        times * known.update(rows, tasks)
        for (rows, tasks), times in _grouped(np.minimum(offered, capacity), np.searchsorted(ends, rounds), earned)
    )
    before = np.arange(stored[-1])  # samples offered earlier, for each that is
    steady = sum(
        times * _worth(known.cost(rows, tasks).sample)
        for (rows, tasks), times in _grouped(np.minimum(before, capacity), np.searchsorted(ends, before + 1))
    )
    steady += sum(_worth(known.cost(capacity, tasks).task) for tasks in range(len(ends)))
    asked = np.union1d(np.arange(experiment.query_every, samples + 1, experiment.query_every), ends)
    if method.readout.only_at_end:
        asked = np.array([samples])
    moments = np.unique(stored[(ends if method.readout.needs_boundaries else asked) - 1])
    study = sum(times * known.epoch(rows) for (rows, _), times in _grouped(np.minimum(moments, capacity), 0 * moments))
    return ComputeEstimate(steady, rated, study, _epochs(method), int(earned.sum()))


def training_flops(experiment: Experiment, of: DatasetSize) -> float:
    """Floating-point operations that a run will spend on training: all that is counted but its questions."""
    one = compute_estimate(experiment, of)
    passes = one.steady + one.rated * float(experiment.method.pace.updates_per_sample) + one.study * (one.epochs or 0)
    per_image = flops(experiment.network, of.image, of.classes, freeze=experiment.freeze)
    return passes * per_image + stored_flops(experiment, of)


def stored_flops(experiment: Experiment, of: DatasetSize) -> int:
    """Operations for the features that a frozen body computes of each sample once; 0 where pixels are stored."""
    samples = experiment.samples or of.samples
    return samples * feature_flops(experiment.network, of.image) if experiment.freeze == "body" else 0


class _Costs:
    """What a method's parts cost while the memory holds so many rows and so many tasks have ended, forward passes."""

    def __init__(self, method: Method, budget: int, classes: int) -> None:
        self.method, self.budget, self.classes = method, budget, classes
        self.parts = [part for _, part in method.parts() if part is not method.readout or method.refit is None]

    def cost(self, rows: int, tasks: int) -> Cost:
        load = workload(self.method, self.budget, rows=rows, classes=self.classes, tasks=tasks)
        return sum((part.cost(load) for part in self.parts), Cost())

    def update(self, rows: int, tasks: int) -> float:
        batch = workload(self.method, self.budget, rows=rows, classes=self.classes, tasks=tasks).batch
        return _worth(Passes(batch, batch) + self.cost(rows, tasks).update) + measured_rows(self.method, rows)

    def epoch(self, rows: int) -> float:
        """Returns the operations of one epoch of a refit."""
        if self.method.refit is None:
            return 0.0
        size = self.method.refit.rehearsal.joins(rows)
        batches = [size] * (rows // size) + [rows % size] * bool(rows % size) if size else []
        load = Workload(streamed=0, batch=size, capacity=rows, budget=self.budget, classes=self.classes)
        parts = [part for _, part in self.method.refit.parts()]
        return sum(
            _worth(Passes(batch, batch)) + sum(_worth(part.cost(replace(load, batch=batch)).update) for part in parts)
            for batch in batches
        )


def _offered(method: Method, seen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples offered to the memory when so many were seen."""
    size = method.pace.stream_batch
    return seen // size * size if method.pace.store_when == "after" else seen


def _grouped(
    rows: NDArray[np.int64], tasks: NDArray[np.int64], times: NDArray[np.int64] | None = None
) -> list[tuple[tuple[int, int], int]]:
    """Each pair that occurs, and how often; a memory of many thousands of rows is taken to fill up in steps."""
    if not len(rows):
        return []
    step, most = max(1, int(rows.max()) // STEPS), int(tasks.max()) + 1
    rows = np.where(rows == rows.max(), rows, rows // step * step + step // 2)
    pairs, where = np.unique(rows * most + tasks, return_inverse=True)
    counts = np.bincount(where, weights=times)
    return [(divmod(int(pair), most), int(count)) for pair, count in zip(pairs, counts, strict=True)]


def _worth(passes: Passes) -> float:
    """Returns what passes are worth, in forward passes."""
    return passes.forward + BACKWARD * passes.backward


def _epochs(method: Method) -> int | None:
    return None if method.refit is None else getattr(method.readout, EPOCHS)
