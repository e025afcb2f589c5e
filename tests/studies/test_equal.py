"""Equal compute and bytes: what is foreseen is what runs spend and hold, and what is made equal is equal when run."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest

from iblurry.analysis.compute import DATASET_SIZES, DatasetSize, compute_estimate, dataset_size, training_flops
from iblurry.analysis.table import TABLE_METRICS
from iblurry.components.edit import edit
from iblurry.data.load import load
from iblurry.data.sources.arrays import save
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Spent
from iblurry.launch.launch import run
from iblurry.methods import METHODS
from iblurry.network.flops import flops
from iblurry.parts import Diverse
from iblurry.studies.catalogue import COMPUTE, MAIN as MAIN_RESULTS
from iblurry.studies.equal import equal_bytes, equal_compute, held_bytes, with_bytes, with_compute
from iblurry.studies.selection import Selection
from iblurry.studies.study import PlannedRun
from tests.experiment.small import DATA, small

SIZE = dataset_size(DATA)
CIFAR = DATASET_SIZES["cifar10"]
KEEPERS = [name for name in METHODS if "-" not in name and name != "joint"]
MAIN = ("er", "ewc", "mir", "agem", "gss", "gdumb", "rm", "clib", "joint", "clib-stream")


def spent(experiment, out):
    """Training's operations as counted."""
    record = run(experiment, out).records[-1]
    assert isinstance(record, Spent)
    return sum(record.flops.values()) - record.flops["queries"]


def quick(name, **changes):
    one = small(name, **changes)
    if name != "gss":
        return one
    return dataclasses.replace(one, method=dataclasses.replace(one.method, admission=Diverse(batches=1, size=3)))


def test_early_samples_are_on_the_bill(tmp_path):
    early = edit(edit(small("balm"), "pace.early_samples=21"), "pace.early_updates=3")
    assert spent(early, tmp_path) == training_flops(early, SIZE)


@pytest.mark.quick("er", "clib", "mir", "gdumb")
@pytest.mark.parametrize("name", MAIN)
def test_the_bill_is_what_a_run_spends(name, tmp_path):
    one = quick(name)
    assert spent(one, tmp_path) == training_flops(one, SIZE)
    assert one.order(load(DATA)).ends == (40, 80)  # of equal length, as the bill has it


def test_what_claims_samples_is_nearly_right(tmp_path):
    assert spent(small("bic"), tmp_path) == pytest.approx(training_flops(small("bic"), SIZE), rel=0.05)


def test_it_is_cut_with_the_stream(tmp_path):
    cut = small("clib", samples=53)
    assert spent(cut, tmp_path) == training_flops(cut, SIZE)
    assert training_flops(small("er", samples=3), SIZE) == 0  # not a round


@pytest.mark.quick("er", "gdumb")
@pytest.mark.parametrize("name", ["er", "gdumb", "mir", "gss", "rm", "clib"])
def test_compute_is_equal_when_run(name, tmp_path):
    reference = small("clib")
    given = with_compute(quick(name), reference, SIZE)
    wanted, got = spent(reference, tmp_path), spent(given, tmp_path)
    image = flops(reference.network, (1, 8, 8), 4)
    one = compute_estimate(given, SIZE)
    if given.method.refit is not None:
        assert abs(got - wanted) <= one.study * image / 2
        assert given.method.pace == small(name).method.pace
    else:
        assert abs(got - wanted) <= 2 * image * one.rated / 80  # an update or two at the end
        assert given.method.readout == small(name).method.readout


def test_compute_by_hand():
    """CIFAR-10, K = 500: CLIB takes 3 * 16 + its rows each sample, ER 3 * 16 once it has rows to rehearse."""
    clib, er = Experiment.of("clib", "cifar10"), Experiment.of("er", "cifar10")
    image = flops("resnet18", (3, 32, 32), 10)
    filling = sum(3 * min(16, rows) + rows for rows in range(1, 501))
    assert training_flops(clib, CIFAR) == image * (filling + 49_500 * (48 + 500))
    assert training_flops(er, CIFAR) == image * (8 * 24 + 49_992 * 48)
    given = with_compute(er, clib, CIFAR)
    wanted = training_flops(clib, CIFAR) / training_flops(er, CIFAR)
    assert float(given.method.pace.updates_per_sample) == pytest.approx(wanted, rel=1e-4)
    assert given.method.pace.updates_per_sample.denominator <= 10_000
    assert with_compute(clib, clib, CIFAR) == clib
    assert given.name != er.name


def test_compute_that_cannot_be_is_refused():
    er = Experiment.of("er", "cifar10")
    seldom = dataclasses.replace(er.method.pace, updates_per_sample=Fraction(1, 8))
    less = dataclasses.replace(er, method=dataclasses.replace(er.method, pace=seldom), samples=5000)
    for name, reference in (("gss", er), ("agem", er), ("joint", less)):
        with pytest.raises(InputError, match=f"{name} .* er"):
            with_compute(Experiment.of(name, "cifar10"), reference, CIFAR)


def test_a_row_that_cannot_be_is_named_with_the_way_out():
    planned = [PlannedRun(row, "", Experiment.of(row.split()[0], "cifar10")) for row in ("er", "gss admission.size=9")]
    with pytest.raises(InputError, match=r"'gss admission\.size=9'.*--methods"):
        equal_compute(planned, "er")
    with pytest.raises(InputError, match=r"'gss'.*'equal compute'.*--methods"):
        dataclasses.replace(COMPUTE, rows=("er", "gss")).plan("digits")
    with pytest.raises(InputError, match=r"'ewc'.*'N=0'.*--methods"):
        equal_bytes([PlannedRun("ewc", "N=0", small("ewc"))], "er")
    for make in (equal_compute, equal_bytes):
        with pytest.raises(UnknownNameError, match="'eer'"):  # that is no row's fault
            make(planned, "eer")


def test_a_plan_keeps_its_places():
    planned = [PlannedRun(name, "N=50", Experiment.of(name, "cifar10", seed=2, memory=200)) for name in ("er", "clib")]
    equal = equal_compute(planned, "clib")
    assert [(one.row, one.column, one.experiment.seed) for one in equal] == [("er", "N=50", 2), ("clib", "N=50", 2)]
    assert equal[1] == planned[1]
    assert 5 < equal[0].experiment.method.pace.updates_per_sample < 5.3  # (48 + 200) / 48
    halved = equal_compute(planned, "clib pace.measure_every=2")
    assert halved[1].experiment.method.pace.updates_per_sample < 1


def test_the_study():
    planned = COMPUTE.plan("cifar10", seeds=(1, 2))
    assert [one.column for one in planned] == ["own pace"] * 14 + ["equal compute"] * 14
    assert set(COMPUTE.rows) <= {*METHODS}
    assert len({one.experiment.name for one in planned}) == 28 - 2  # clib is as it was
    takes = [training_flops(one.experiment, CIFAR) for one in planned[14:]]
    assert max(takes) / min(takes) < 1.03  # whole epochs of gdumb
    assert COMPUTE.plan("cifar10", seeds=(1, 2), columns=["equal compute"]) == planned[14:]


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_study_on_digits(scale):
    planned = COMPUTE.plan("digits", seeds=(1,), scale=scale, columns=["equal compute"])
    takes = {one.row: training_flops(one.experiment, dataset_size("digits")) for one in planned}
    assert {one.experiment.share for one in planned} == {scale}
    assert takes["er"] == pytest.approx(takes["clib"], rel=1e-3)
    assert max(takes.values()) / min(takes.values()) < 1.3  # whole epochs of a short refit


def test_data_are_found_in_their_home(tmp_path):
    save(load("shapes:classes=10,train=8,test=2,size=8,channels=1"), tmp_path / "fashion_mnist.npz")
    er, clib = (Experiment.of(name, "fashion_mnist") for name in ("er", "clib"))
    wanted = with_compute(er, clib, DatasetSize(samples=80, classes=10, image=(1, 8, 8)))
    some = {"dataset": "fashion_mnist", "rows": ("er",), "seeds": (er.seed,), "data_home": tmp_path}
    assert [one.experiment for one in Selection(study=MAIN_RESULTS, equal_compute="clib", **some).planned] == [wanted]
    assert [one.experiment for one in Selection(study=COMPUTE, **some).planned] == [er, wanted]


def held(result):
    return 1e6 * TABLE_METRICS["bytes"].value(result)


@pytest.mark.quick("er", "clib", "bic", "slda", "mkd")
@pytest.mark.parametrize("name", KEEPERS)
def test_what_is_foreseen_is_what_a_learner_holds(name, tmp_path):
    experiment = small(name, memory=40, samples=8)
    foreseen = held_bytes(experiment, SIZE)
    result = run(experiment, tmp_path)
    assert foreseen.at(40) == pytest.approx(held(result), abs=max(1, foreseen.sample))


@pytest.mark.parametrize("name", ["er", "clib", "bic", "balm"])
def test_bytes_are_equal_when_run(name, tmp_path):
    reference = small("ewc", memory=60, samples=8)
    given = with_bytes(small(name, samples=8), reference, SIZE)
    assert given.method == small(name).method
    wanted, got = (held(run(one, tmp_path)) for one in (reference, given))
    assert got == pytest.approx(wanted, abs=1.5 * held_bytes(given, SIZE).sample)
    assert with_bytes(reference, reference, SIZE) == reference


def test_bytes_by_hand():
    """CIFAR-10: a row of ER is 3,072 pixels, its label and when it was written."""
    er, ewc = (Experiment.of(name, "cifar10", network="mlp:width=32") for name in ("er", "ewc"))
    of = dataset_size("cifar10")
    assert held_bytes(er, of).sample == 3072 + 8 + 8
    more = held_bytes(ewc, of).fixed - held_bytes(er, of).fixed
    assert with_bytes(er, ewc, of).memory == 500 + round(more / 3088)


def test_bytes_that_cannot_be_are_refused():
    er, joint = small("er"), small("joint")
    for name, reference in (("ewc", er), ("joint", er), ("ncm", er)):
        with pytest.raises(InputError, match=name):
            with_bytes(small(name), reference, SIZE)
    like = with_bytes(er, joint, SIZE)  # whose memory is the stream of 80 samples
    assert held_bytes(er, SIZE).at(like.memory) == pytest.approx(held_bytes(joint, SIZE).at(80), rel=0.01)


def test_of_a_study_and_with_equal_compute():
    some = {"study": MAIN_RESULTS, "dataset": "digits", "rows": ("er", "clib"), "seeds": (1,)}
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
