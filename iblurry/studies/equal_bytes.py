"""Equal bytes: a method given the memory with which it holds as many bytes as another one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from iblurry.analysis.compute import DatasetSize, memory_budget
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.learner.cost import bytes_held
from iblurry.studies.compute import equal_run, in_place
from iblurry.studies.study import PlannedRun, least_budget

APART = 1000  # samples between the two memories that are measured


class HeldBytes(NamedTuple):
    """What a method holds with a memory of K samples: fixed + sample * K bytes, to a sample."""

    fixed: float  # networks, optimizer, state of the parts
    sample: float

    def at(self, memory: int) -> float:
        """Bytes with so many samples."""
        return self.fixed + self.sample * memory


def with_bytes(experiment: Experiment, reference: Experiment, of: DatasetSize) -> Experiment:
    """The experiment with the memory at which it holds as many bytes as the reference, to the nearest sample.

    What is held is what runs count: memory, samples that wait, state of the parts, networks and the optimizer's state.
    InputError where nothing is left for a memory.

    Parameters
    ----------
    experiment : Experiment
        Whose memory is chosen.
    reference : Experiment
        On the same data.
    of : DatasetSize
        Those data.
    """
    name, other = experiment.method.name, reference.method.name
    if experiment.method.admission.keeps_all:
        raise InputError(f"{name} keeps every sample, so it cannot have the same bytes as {other}.")
    if experiment.method.admission.keeps_none:
        raise InputError(f"{name} keeps no sample, so it cannot have the same bytes as {other}.")
    held, wanted = held_bytes(experiment, of), held_bytes(reference, of).at(memory_budget(reference, of))
    memory = round((wanted - held.fixed) / held.sample)
    least = least_budget(experiment.method, of.classes)
    if memory < least:
        raise InputError(
            f"{name} cannot have the same bytes as {other}: it holds {held.at(least) / 1e6:,.1f} MB with the least "
            f"memory, {least} samples, and {other} {wanted / 1e6:,.1f} MB; choose a reference that holds more."
        )
    return dataclasses.replace(experiment, memory=memory)


def equal_bytes(planned: Iterable[PlannedRun], reference: str, data_home: Path | None = None) -> list[PlannedRun]:
    """Each with the memory at which it holds as many bytes as `reference` (written as a row is) does in its place."""
    return [equal_run(one, in_place(one.experiment, reference), data_home, with_bytes) for one in planned]


def held_bytes(experiment: Experiment, of: DatasetSize) -> HeldBytes:
    """Measured on two learners with small memories; the same for every seed."""
    for component in experiment.components():
        component.refuse()
    return _held_bytes(dataclasses.replace(experiment, seed=0, memory=1), of)


@functools.lru_cache(maxsize=256)
def _held_bytes(experiment: Experiment, of: DatasetSize) -> HeldBytes:
    low = least_budget(experiment.method, 1)
    first, second = (_measure(experiment, of, memory) for memory in (low, low + APART))
    sample = (second - first) / APART
    return HeldBytes(first - sample * low, sample)


def _measure(experiment: Experiment, of: DatasetSize, memory: int) -> int:
    from iblurry.learner.learner import Learner

    learner = Learner(
        experiment.method,
        image=of.image,
        classes=of.classes,
        memory=memory,
        network=experiment.network,
        initialise=experiment.initialise,
        freeze=experiment.freeze,
        augment=(),
        seed=0,
    )
    return sum(bytes_held(learner).values())
