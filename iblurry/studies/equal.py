"""Rows made equal to a reference: in the operations that training takes, or in the bytes that are held."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from iblurry.analysis.compute import (
    EPOCHS,
    DatasetSize,
    compute_estimate,
    dataset_size,
    memory_budget,
    stored_flops,
    training_flops,
)
from iblurry.components.edit import edit
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.settings import setting
from iblurry.learner.cost import bytes_held
from iblurry.methods import method as method_named
from iblurry.methods.method import Method
from iblurry.network.flops import flops
from iblurry.studies.study import PlannedRun, Study, least_budget

EQUAL = "equal compute"  # the column of those with the reference's compute
_NEAREST = 10_000  # the largest denominator of an updates_per_sample: within a ten-thousandth of what is wanted
_APART = 1000  # samples between the two memories whose bytes are measured


def with_compute(experiment: Experiment, reference: Experiment, of: DatasetSize) -> Experiment:
    """The experiment with as many operations for training as the reference takes on the same data.

    A method that is refitted gets other epochs, to the nearest whole number; any other one gets other updates per
    sample, within a ten-thousandth. InputError where that cannot be.

    >>> er, clib = (Experiment.of(name, "cifar10") for name in ("er", "clib"))
    >>> round(float(with_compute(er, clib, dataset_size("cifar10")).method.pace.updates_per_sample), 1)
    11.4
    """
    one, method = compute_estimate(experiment, of), experiment.method
    per_image = flops(experiment.network, of.image, of.classes, freeze=experiment.freeze)
    wanted = (training_flops(reference, of) - stored_flops(experiment, of)) / per_image
    if one.epochs is not None:
        left = wanted - one.steady - one.rated * float(method.pace.updates_per_sample)
        epochs = round(left / one.study)
        if epochs < 1:
            raise _too_little(experiment, reference, left, "an epoch of its refits", one.study)
        readout: Any = method.readout
        return _replaced(experiment, readout=dataclasses.replace(readout, **{EPOCHS: epochs}))
    left = wanted - one.steady
    if left <= 0 or not one.rated:
        raise _too_little(experiment, reference, left, "an update per sample", one.rated)
    updates = Fraction(left / one.rated).limit_denominator(_NEAREST)
    try:
        return _replaced(experiment, pace=dataclasses.replace(method.pace, updates_per_sample=updates))
    except InputError as error:
        raise InputError(f"{method.name} cannot have the same compute as {reference.method.name}: {error}") from error


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


def equal_compute(
    planned: Sequence[PlannedRun],
    reference: str,
    data_home: Path | None = None,
    *,
    places: Sequence[PlannedRun] | None = None,
) -> list[PlannedRun]:
    """Planned runs with the compute that `reference`, written as a row is, takes in their `places`."""
    pairs = zip(planned, places or planned, strict=True)
    return [_equal_run(one, _in_place(place.experiment, reference), data_home, with_compute) for one, place in pairs]


def equal_bytes(planned: Iterable[PlannedRun], reference: str, data_home: Path | None = None) -> list[PlannedRun]:
    """Planned runs with the memory to hold as many bytes as `reference`, written as a row is, does in their places."""
    return [_equal_run(one, _in_place(one.experiment, reference), data_home, with_bytes) for one in planned]


@dataclass(frozen=True, kw_only=True)
class EqualCompute(Study):
    """A study of every row twice: at its own pace, and with the compute of the reference, where that suffices."""

    columns: Callable[[str], Mapping[str, Any]] = lambda dataset: {"own pace": {}, EQUAL: {}}
    reference: str = "clib"
    own_pace_only: tuple[str, ...] = ()  # rows whose other costs alone are more than the reference takes

    def has(self, row: str, column: str) -> bool:
        return column != EQUAL or row not in self.own_pace_only

    def adjust(self, planned: PlannedRun, data_home: Path | None) -> PlannedRun:
        return equal_compute([planned], self.reference, data_home)[0] if planned.column == EQUAL else planned


def held_bytes(experiment: Experiment, of: DatasetSize) -> HeldBytes:
    """What the experiment's method holds, measured on two learners with small memories; the same for every seed."""
    for component in experiment.components():
        component.refuse()
    return _held_bytes(dataclasses.replace(experiment, seed=0, memory=1), of)


@functools.lru_cache(maxsize=256)
def _held_bytes(experiment: Experiment, of: DatasetSize) -> HeldBytes:
    low = least_budget(experiment.method, 1)
    first, second = (_measure(experiment, of, memory) for memory in (low, low + _APART))
    sample = (second - first) / _APART
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


def _equal_run(
    one: PlannedRun,
    reference: Experiment,
    data_home: Path | None,
    make_equal: Callable[[Experiment, Experiment, DatasetSize], Experiment],
) -> PlannedRun:
    """The run made equal to the reference; InputError with the row that it is about and the way out."""
    try:
        made = make_equal(one.experiment, reference, dataset_size(one.experiment.dataset, data_home))
    except InputError as error:
        place = f"The row {one.row!r}" + (f" in the column {one.column!r}" if one.column else "")
        raise InputError(f"{place}: {error} Or leave the row out: name the others with --methods.") from error
    return dataclasses.replace(one, experiment=made)


def _in_place(experiment: Experiment, reference: str) -> Experiment:
    """The reference, written as a row is, with the data, stream and memory of the experiment."""
    name, *edits = reference.split()
    return functools.reduce(
        edit, edits, _replaced(experiment, method=method_named(name, setting(experiment.dataset).hyperparameters))
    )


def _replaced(experiment: Experiment, method: Method | None = None, **slots: Any) -> Experiment:
    return dataclasses.replace(experiment, method=method or dataclasses.replace(experiment.method, **slots))


def _too_little(experiment: Experiment, reference: Experiment, left: float, what: str, costs: float) -> InputError:
    there = f"{left:,.0f} are left after" if left > 0 else "none is left after"
    return InputError(
        f"{experiment.method.name} cannot have the same compute as {reference.method.name}: {what} takes {costs:,.0f} "
        f"forward passes of an image and {there} its other costs; choose a costlier reference."
    )
