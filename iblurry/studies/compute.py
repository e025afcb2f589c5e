"""Equal compute: a method given as many floating-point operations for training as another one takes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from iblurry.analysis.compute import (
    EPOCHS,
    DatasetSize,
    compute_estimate,
    dataset_size,
    stored_flops,
    training_flops,
)
from iblurry.components.edit import edit
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.settings import setting
from iblurry.methods import method as method_named
from iblurry.methods.method import Method
from iblurry.network.flops import flops
from iblurry.studies.study import PlannedRun, Study

EQUAL = "equal compute"  # the column of those with the reference's compute
NEAREST = 10_000  # the largest denominator of an updates_per_sample: within a ten-thousandth of what is wanted


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
    updates = Fraction(left / one.rated).limit_denominator(NEAREST)
    try:
        return _replaced(experiment, pace=dataclasses.replace(method.pace, updates_per_sample=updates))
    except InputError as error:
        raise InputError(f"{method.name} cannot have the same compute as {reference.method.name}: {error}") from error


def equal_compute(
    planned: Sequence[PlannedRun],
    reference: str,
    data_home: Path | None = None,
    *,
    places: Sequence[PlannedRun] | None = None,
) -> list[PlannedRun]:
    """Each with the compute that `reference` (written as a row is) takes in its place, or in the one of `places`."""
    pairs = zip(planned, places or planned, strict=True)
    return [equal_run(one, in_place(place.experiment, reference), data_home, with_compute) for one, place in pairs]


@dataclass(frozen=True, kw_only=True)
class EqualCompute(Study):
    """Every row twice: at its own pace, and with the compute of the reference, where that is enough for it."""

    reference: str = "clib"
    own_pace_only: tuple[str, ...] = ()  # rows whose other costs alone are more than the reference takes

    def has(self, row: str, column: str) -> bool:
        return column != EQUAL or row not in self.own_pace_only

    def adjust(self, planned: PlannedRun, data_home: Path | None) -> PlannedRun:
        return equal_compute([planned], self.reference, data_home)[0] if planned.column == EQUAL else planned


def _columns(dataset: str) -> Mapping[str, Mapping[str, Any]]:
    return {"own pace": {}, EQUAL: {}}


COMPUTE = EqualCompute(
    name="compute",
    title="Equal compute",
    question="Which method is best when all have the same compute as CLIB?",
    datasets=("cifar10", "cifar100", "tinyimagenet", "imagenet"),
    # not A-GEM and GSS, which alone take more where the memory is small
    columns=_columns,
    metrics=("a_auc", "a_avg", "compute"),  # whole epochs, and what a bill leaves out, are not quite equal
)


LEADERBOARD = EqualCompute(
    name="leaderboard",
    title="Leaderboard",
    question="Which method is best without being told of tasks, at its own pace and at BALM's compute?",
    datasets=("cifar10",),
    rows=(
        *("er", "er-averaged", "er-ace", "derpp", "mir", "mkd", "agem", "gss"),
        *("sar", "sdp", "clib", "clib-averaged", "balm"),
    ),
    columns=_columns,
    metrics=("a_auc", "a_avg", "a_last", "f_last", "compute"),
    reference="balm",
    own_pace_only=("mir", "agem", "gss", "clib", "clib-averaged"),
)


def equal_run(
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


def in_place(experiment: Experiment, reference: str) -> Experiment:
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
