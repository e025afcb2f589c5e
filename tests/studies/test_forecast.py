"""What a study will compute and how long it takes: as runs count it, and arithmetic that can be done by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from iblurry.data.load import load
from iblurry.errors import InputError
from iblurry.experiment.environment import Hardware
from iblurry.experiment.folder import RunFolder
from iblurry.launch import progress
from iblurry.launch.launch import run
from iblurry.launch.progress import ProgressDisplay
from iblurry.network.flops import flops
from iblurry.parts import NearestMean
from iblurry.studies import trial
from iblurry.studies.compute_estimate import query_flops
from iblurry.studies.forecast import (
    ExpectedRun,
    Forecast,
    RunCost,
    expect_runs,
    finished_seconds,
    run_cost,
    seedless,
    trial_key,
)
from iblurry.studies.study import PlannedRun
from iblurry.studies.trial import Trial, measure, place_of, try_apart
from tests.experiment.small import DATA, small
from tests.studies.written import ENVIRONMENT, usual, write_run

CPU = Hardware(threads=1, device="cpu")


def expected(row, seed, seconds, *, flops=1.0, basis="timed"):
    experiment = usual(row, seed)
    cost = RunCost(steps=100, moments=10, training=flops, queries=0.0)
    return ExpectedRun(planned=PlannedRun(row, "", experiment), cost=cost, seconds=seconds, basis=basis)


@pytest.mark.quick("er", "bic", "rm", "nearest mean")
@pytest.mark.parametrize("name", ["er", "bic", "rm", "nearest mean", "clib", "gdumb", "joint", "balm"])
def test_the_cost_of_a_run_is_what_it_counts(name, tmp_path):
    one = small("er" if name == "nearest mean" else name)
    if name == "nearest mean":
        one = dataclasses.replace(one, method=dataclasses.replace(one.method, readout=NearestMean()))
    spent = run(one, tmp_path).summary["compute"]
    cost = run_cost(one, load(DATA))
    assert cost.queries == query_flops(one, load(DATA)) == spent["flops"]["queries"]
    if name != "bic":  # takes some samples for itself, as the estimate says
        assert cost.training == sum(spent["flops"].values()) - spent["flops"]["queries"]
    assert cost.moments == (1 if name == "joint" else 13)  # 7, 14, ..., 77 and the ends of the tasks, 40 and 80


def test_the_stream_of_a_cut_run_is_what_counts():
    one = small("er", samples=30)
    assert run_cost(one, load(DATA)).steps == 30 // 4 * 4


def test_a_trial_tells_the_time_of_a_run():
    plain = Trial(steps=10, seconds=2.0, flops=50.0, answering=100.0, preparing=0.5)
    steps = 20.0 + 3 * 0.5 + 400 / 100  # 100 steps of 0.2 s, three preparations, the answers
    assert plain.run_seconds(steps=100, moments=3, training=500.0, queries=400.0) == pytest.approx(steps)
    assert plain.run_seconds(steps=100, moments=3, training=700.0, queries=400.0) == pytest.approx(steps + 200 / 100)
    assert plain.run_seconds(steps=100, moments=3, training=100.0, queries=400.0) == pytest.approx(steps)
    refits = dataclasses.replace(plain, flops=0.0, refitting=25.0, preparing=0.0)
    assert refits.run_seconds(steps=100, moments=3, training=500.0, queries=400.0) == pytest.approx(20 + 500 / 25 + 4)


def test_finished_runs_on_this_device_count_whatever_their_seed(tmp_path):
    here = {name: ENVIRONMENT[name] for name in ("machine", "device", "precision", "threads")}
    write_run(tmp_path, usual("er", 1), 50, seconds=90, pack=3)
    write_run(tmp_path, usual("er", 2), 50, seconds=50, pack=1)
    write_run(tmp_path, usual("er", 3), 50, seconds=7, pack=1, device="Another GPU")
    write_run(tmp_path, usual("er", 4), 50, seconds=7)  # nobody knows how many ran beside it
    write_run(tmp_path, usual("er", 5, memory=50), 50, seconds=7, pack=1)
    (write_run(tmp_path, usual("er", 6), 50, seconds=7, pack=1)[0] / "summary.json").unlink()
    stopped = RunFolder(write_run(tmp_path, usual("er", 7), 50, seconds=7, pack=1)[0])
    stopped.write("summary.json", stopped.summary() | {"stopped": {"at": 3, "reason": "enough"}})
    write_run(tmp_path, usual("er-ace", 1), 50, seconds=7, pack=1)
    wanted = [usual("er", 9), usual("clib", 9)]
    assert finished_seconds(wanted, [tmp_path, tmp_path / "none"], here) == {seedless(wanted[0]): [30, 50]}
    assert finished_seconds(wanted, [tmp_path], None) == {}
    cpu = here | {"device": "cpu"}
    out = tmp_path / "cpu"
    write_run(out, usual("er", 1), 50, seconds=90, device="cpu")
    write_run(out, usual("er", 2), 50, seconds=90, device="cpu", threads=8)
    write_run(out, usual("er", 3), 50, seconds=90, device="cpu", machine="Linux x86_64, 2 cores")
    assert finished_seconds(wanted, [out], cpu) == {seedless(wanted[0]): [90]}


def test_finished_runs_count_before_trials_and_trials_before_operations():
    planned = [PlannedRun(row, "", usual(row, seed)) for row in ("er", "clib", "mir") for seed in (1, 2)]
    cost = {"er": 10.0, "clib": 30.0, "mir": 20.0}
    costs = {one.experiment.name: RunCost(steps=100, moments=0, training=cost[one.row], queries=0.0) for one in planned}
    timed = Trial(steps=10, seconds=2.0, flops=5.0, answering=1.0)
    trials = {trial_key(usual("clib")): timed, trial_key(usual("er")): timed, trial_key(usual("mir")): None}
    runs = expect_runs(planned, costs, {seedless(usual("er")): [40.0, 60.0]}, trials)
    assert [(one.planned.row, one.seconds, one.basis) for one in runs[::2]] == [
        ("er", 50.0, "finished"),
        ("clib", 20.0, "timed"),
        ("mir", 20.0 * (50 + 20) / (10 + 30), "compared"),
    ]
    assert {one.seconds for one in expect_runs(planned, costs, {}, {})} == {None}


def test_what_is_left_is_shared_by_the_places_and_corrected_by_what_has_ended():
    runs = [expected("er", 1, 10.0), expected("er", 2, 10.0), expected("clib", 1, 40.0), expected("mir", 1, 20.0)]
    er, other, clib, mir = (one.name for one in runs)
    assert Forecast(runs, 2).left() == 40.0
    assert Forecast(runs, 4).left() == 40.0  # no sooner than the longest
    assert Forecast(runs, 2).left({er: 1.0, clib: 0.75}) == (10 + 10 + 20) / 2
    forecast = Forecast(runs, 1)
    forecast.learn(er, 15.0)  # half as long again, which is the best guess for all others
    assert forecast.left({er: 1.0}) == 15 + 60 + 30
    forecast.learn(clib, 20.0)
    assert forecast.left({er: 1.0, clib: 1.0}) == pytest.approx(15 + 20 * 35 / 50)
    forecast.learn("another program's", 1e9)
    assert forecast.left({er: 1, other: 1, clib: 1, mir: 1}) == 0


def test_the_sentence_says_what_it_is_based_on():
    known = [
        expected("er", 1, 30.0, basis="finished"),
        expected("er", 2, 30.0, basis="finished"),
        expected("clib", 1, 400.0),
        expected("mir", 1, 340.0),
    ]
    sentence = (
        "About 6.7 min, 2 at a time, from finished runs of 1 method on this device and a timed moment of 2 methods."
    )
    assert Forecast(known, 2).describe() == sentence
    unknown = Forecast([expected("er", 1, None, basis=None)], 1)
    assert unknown.left() is None
    assert "not known" in unknown.describe()


def test_progress_tells_what_is_left(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PAUSE", -1.0)
    runs = [expected("er", 1, 100.0), expected("er", 2, 100.0)]
    with ProgressDisplay("main", runs=2, forecast=Forecast(runs, 1), pack=2) as display:
        bar = display.callback("er seed 1", run=runs[0].name)
        bar.on_run_start("ignored", 150, 300)
        bar.began -= 300.0  # seconds, for half of it: in a pack of two, a run takes 300 of this place
        bar.on_progress(300, 0.5, 0.1)
    said = capsys.readouterr().err.splitlines()
    assert "main: 1 of 2 runs, about 5.0 min to go." in said


class TestMeasure:
    """Trials on this machine: what they count is exact, how long they take is not."""

    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch):
        monkeypatch.setattr(trial, "ENOUGH", 0.02)

    @pytest.mark.parametrize("name", ["er", "clib", "bic", "ewc", "gdumb", "rm", "joint", "balm"])
    def test_every_kind_of_method(self, name):
        threads = torch.get_num_threads()
        measured = measure(small(name), CPU, load(DATA))
        assert measured.steps > 0
        assert min(measured.seconds, measured.answering) > 0
        assert (measured.refitting is not None) == (name in ("gdumb", "rm", "joint"))
        assert (measured.flops > 0) == (name not in ("gdumb", "joint"))
        assert torch.get_num_threads() == threads

    def test_steps_are_those_of_a_full_memory(self):
        one, data = small("clib"), load(DATA)
        measured = measure(one, CPU, data)
        image = flops(one.network, data.shape, len(data.classes))
        assert measured.flops / measured.steps == image * (3 * 8 + 24)  # a batch of eight, the loss of 24 rows

    @pytest.mark.parametrize("name", ["er", "clib", "gdumb"])
    def test_steps_that_would_take_too_long_are_not_tried(self, name, monkeypatch):
        monkeypatch.setattr(trial, "LONG", 0.0)
        monkeypatch.setattr(trial._Stopwatch, "_learn", None)
        measured = measure(small(name), CPU, load(DATA))
        expected = (3e9 + 1e9) / measured.answering
        assert measured.run_seconds(steps=7, moments=2, training=3e9, queries=1e9) == pytest.approx(expected)

    def test_the_least_a_trial_computes(self):
        data = load(DATA)
        image = flops(small("er").network, data.shape, len(data.classes))
        least = {name: trial._Stopwatch(small(name), CPU, data).least_operations() / image for name in ("er", "clib")}
        assert least == {
            "er": 2 * 4 * 3 * 8,
            "clib": 2 * (3 * 8 + 24),
        }  # two rounds, of four updates or of one; 24 rows

    def test_a_stream_without_a_round_is_refused(self):
        with pytest.raises(InputError, match="too short"):
            measure(small("er", samples=7), CPU, load(DATA))

    @pytest.mark.slow
    def test_in_processes_of_their_own(self):
        broken = small("er", dataset="nowhere.npz")
        timed, failed = try_apart([(small("er"), CPU), (broken, CPU)], None, 2)
        assert timed is not None
        assert timed.steps > 0
        assert failed is None
        assert place_of(Hardware(device="cuda:99")) is None
        assert place_of(CPU)["device"] == "cpu"
