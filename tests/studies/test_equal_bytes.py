"""Equal bytes: what is foreseen is what runs hold, and what is made equal is equal when it was run."""

from __future__ import annotations

import pytest

from iblurry.analysis.compute import dataset_size, training_flops
from iblurry.analysis.metrics import TABLE_METRICS
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.launch.launch import run
from iblurry.methods import METHODS
from iblurry.studies.catalogue import MAIN
from iblurry.studies.equal_bytes import equal_bytes, held_bytes, with_bytes
from iblurry.studies.selection import Selection
from iblurry.studies.study import PlannedRun
from tests.experiment.small import DATA, small

SIZE = dataset_size(DATA)
NAMES = [name for name in METHODS if "-" not in name and name != "joint"]


def held(result):
    return 1e6 * TABLE_METRICS["bytes"].value(result)


@pytest.mark.quick("er", "clib", "bic", "slda", "mkd")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_foreseen_is_what_a_learner_holds(name, tmp_path):
    experiment = small(name, memory=40, samples=8)
    foreseen = held_bytes(experiment, SIZE)
    result = run(experiment, tmp_path)
    assert foreseen.at(40) == pytest.approx(held(result), abs=max(1, foreseen.sample))


@pytest.mark.parametrize("name", ["er", "clib", "bic", "balm"])
def test_equal_when_run(name, tmp_path):
    reference = small("ewc", memory=60, samples=8)
    given = with_bytes(small(name, samples=8), reference, SIZE)
    assert given.method == small(name).method
    wanted, got = (held(run(one, tmp_path)) for one in (reference, given))
    assert got == pytest.approx(wanted, abs=1.5 * held_bytes(given, SIZE).sample)
    assert with_bytes(reference, reference, SIZE) == reference


def test_by_hand():
    """CIFAR-10: a row of ER is 3,072 pixels, its label and when it was written."""
    er, ewc = (Experiment.of(name, "cifar10", network="mlp:width=32") for name in ("er", "ewc"))
    of = dataset_size("cifar10")
    assert held_bytes(er, of).sample == 3072 + 8 + 8
    more = held_bytes(ewc, of).fixed - held_bytes(er, of).fixed
    assert with_bytes(er, ewc, of).memory == 500 + round(more / 3088)


def test_what_cannot_be_is_refused():
    er, ewc, joint = (small(name) for name in ("er", "ewc", "joint"))
    with pytest.raises(InputError, match="ewc cannot have the same bytes as er"):
        with_bytes(ewc, er, SIZE)
    with pytest.raises(InputError, match="joint keeps every sample"):
        with_bytes(joint, er, SIZE)
    with pytest.raises(InputError, match="ncm keeps no sample"):
        with_bytes(small("ncm"), er, SIZE)
    like = with_bytes(er, joint, SIZE)  # whose memory is the stream of 80 samples
    assert held_bytes(er, SIZE).at(like.memory) == pytest.approx(held_bytes(joint, SIZE).at(80), rel=0.01)
    planned = [PlannedRun("ewc", "N=0", ewc)]
    with pytest.raises(InputError, match=r"'ewc' in the column 'N=0': .* --methods"):
        equal_bytes(planned, "er")
    with pytest.raises(UnknownNameError, match="'eer'"):
        equal_bytes(planned, "eer")


def test_of_a_study_and_with_equal_compute():
    some = {"study": MAIN, "dataset": "digits", "rows": ("er", "clib"), "seeds": (1,)}
    plain, equal, both = (
        {one.row: one.experiment for one in Selection(**some, **more).planned}
        for more in ({}, {"equal_bytes": "ewc"}, {"equal_bytes": "ewc", "equal_compute": "clib"})
    )
    of = dataset_size("digits")
    for row in ("er", "clib"):
        assert equal[row].memory == both[row].memory > plain[row].memory
        assert equal[row].method == plain[row].method
        wanted = training_flops(plain["clib"], of)  # with its own memory
        assert training_flops(both[row], of) == pytest.approx(wanted, rel=0.01)
    assert equal["er"].memory > equal["clib"].memory  # whose rows have columns
