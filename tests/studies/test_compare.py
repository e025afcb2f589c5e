"""Our runs beside the paper's numbers: the right ones, by the stated rule, and nothing passed off as the paper's."""

from __future__ import annotations

import numpy as np
import pytest

from iblurry.experiment.edit import edit
from iblurry.streams.stream import Published
from iblurry.studies.collect import read_run
from iblurry.studies.compare import MAIN, compare_with_paper, configuration_of, find_counterpart, judge
from iblurry.studies.paper import Configuration, PaperNumber, paper_number
from iblurry.studies.tables.table import MeanStd
from tests.studies.written import usual, write_run


def runs(tmp_path, *experiments_and_levels):
    """Written, and read again; with what their A_AUC and A_avg must be."""
    written = [write_run(tmp_path, experiment, level) for experiment, level in experiments_and_levels]
    return [read_run(folder) for folder, *_ in written], np.array([numbers for _, *numbers in written])


@pytest.mark.parametrize(
    "mean, std, n, target, words",
    [
        (71.26, 0.1, 3, 1.5, "within 1.5"),
        (68.76, 0.1, 3, 1.5, "within 1.5"),
        (72.26, 0.8, 3, 1.5, "within the spreads, beyond 1.5"),
        (72.26, 0.6, 3, 1.5, "above"),
        (72.26, 0.8, 3, None, "within the spreads"),
        (68.5, 0.4, 3, None, "below"),
        (68.5, 0.4, 2, None, "below (provisional)"),
        (71.0, None, 1, None, "within the spreads (provisional)"),
        (72.0, None, 1, None, "above (provisional)"),
    ],
)
def test_verdicts(mean, std, n, target, words):
    paper = PaperNumber(70.26, 1.28, (1,))
    assert judge(paper, MeanStd(mean, std), n, target=target) == words
    copied = PaperNumber(70.26, 1.28, (1,), warning="a copy")
    assert judge(copied, MeanStd(mean, std), n, target=target) == "not judged: see the warning"


def test_a_number_without_a_spread_is_judged_by_ours():
    assert judge(PaperNumber(96.03, None, (1,)), MeanStd(95.8, 0.3), 3) == "within the spreads"
    assert judge(PaperNumber(96.03, None, (1,)), MeanStd(95.5, 0.3), 3) == "below"


def test_numbers_recomputed(tmp_path):
    found, numbers = runs(tmp_path, *((usual("clib", seed), 71) for seed in (1, 2, 3)))
    (block,) = compare_with_paper(found)
    assert block.configuration == MAIN
    for metric, values in zip(("A_AUC", "A_avg"), numbers.T, strict=True):
        (one,) = [one for one in block.comparisons[metric] if one.row == "clib"]
        assert (one.method, one.n) == ("clib", 3)
        mean = values.sum() / 3
        assert one.ours.mean == pytest.approx(mean)
        assert one.ours.std == pytest.approx(np.sqrt(((values - mean) ** 2).sum() / 2))
        assert one.paper == paper_number("clib", metric, MAIN)
        assert one.difference == pytest.approx(mean - one.paper.mean)
    by_metric = {metric: {one.row for one in rows} for metric, rows in block.comparisons.items()}
    assert by_metric == {
        "A_AUC": {None, "clib"},
        "A_avg": {None, "clib"},
        "F_last": {None, "clib"},
        "final_accuracy": {None},
    }


def test_targets_are_for_table_1_on_cifar10_only(tmp_path):
    small = Configuration("cifar10", 50, 10, 200, 5)
    levels = {where.memory: paper_number("er", "A_AUC", where).mean for where in (MAIN, small)}
    found, _ = runs(
        tmp_path, *((usual("er", seed, memory=memory), level) for memory, level in levels.items() for seed in (1, 2, 3))
    )
    main, other = compare_with_paper(found)
    assert other.configuration == small
    words = [next(one.verdict for one in block.comparisons["A_AUC"] if one.row == "er") for block in (main, other)]
    assert words == ["within 2.5", "within the spreads"]


def test_a_method_that_departs_is_not_the_papers(tmp_path):
    short = usual("clib", samples=100)
    small = edit(usual("er"), "network=mlp")
    found, _ = runs(tmp_path, (short, 71), (small, 58), (usual("clib-balanced"), 70))
    (block,) = compare_with_paper(found)
    own = {one.row: one for one in block.comparisons["A_AUC"] if one.row}
    assert [one.paper for one in own.values()] == [None, None, None]
    assert [one.difference for one in own.values()] == [None, None, None]
    verdicts = {row.split()[0]: one.verdict for row, one in own.items()}
    assert verdicts == {
        "clib": "not in the paper: samples=100",
        "er": "not in the paper: network=mlp",
        "clib-balanced": "not in the paper",
    }
    waiting = {one.method for one in block.comparisons["A_AUC"] if one.verdict == "not run yet"}
    assert {"clib", "er"} < waiting


def test_the_released_program_and_the_paper_are_two_rows_beside_one_number(tmp_path):
    found, _ = runs(tmp_path, (usual("clib"), 71), (usual("clib-released"), 70))
    (block,) = compare_with_paper(found)
    mine = [one for one in block.comparisons["A_AUC"] if one.method == "clib"]
    assert {one.row for one in mine} == {"clib", "clib-released"}
    assert {one.paper.mean for one in mine} == {70.26}


@pytest.mark.parametrize(
    "experiment, name",
    [
        (usual("clib"), "clib"),
        (usual("clib", seed=9, disjoint=0, blur=50, memory=200, tasks=10), "clib"),
        (usual("clib", stream=Published(folder="splits", content="of these files")), "clib"),
        (usual("clib-released"), "clib"),
        (usual("er-constant"), "er-constant"),
        (edit(usual("ewc"), "schedule=Constant"), "ewc schedule=Constant"),
        (edit(usual("er"), "schedule=Constant"), None),  # the same, but it calls itself er: its name is er-constant
        (usual("clib-balanced"), None),
        (edit(usual("er"), "schedule.initial_lr=0.001"), None),
        (edit(usual("gdumb"), "refit.optimizer.momentum=0.5"), None),
        (usual("er", query_every=50), None),
        (edit(usual("er"), "name=mine"), None),
    ],
)
def test_counterparts(experiment, name):
    assert find_counterpart(experiment) == name


def test_joint_training_is_compared_at_the_end(tmp_path):
    found, _ = runs(tmp_path, (usual("joint"), 95.9), (usual("joint", disjoint=0), 95.9))
    main, other = compare_with_paper(found)
    for block in (main, other):
        (one,) = block.comparisons["final_accuracy"]
        assert (one.row, one.paper.mean) == ("joint", 96.03)
        assert one.ours.mean == pytest.approx(95.9, abs=2)
        assert not [one for one in block.comparisons["A_AUC"] if one.row]


def test_configurations_in_the_papers_order_and_others_last(tmp_path):
    streams = [{"memory": 77}, {"disjoint": 100, "blur": 0}, {"disjoint": 0}, {}]
    found, _ = runs(tmp_path, *((usual("er", **stream), 60) for stream in streams))
    assert [str(block.configuration) for block in compare_with_paper(found)] == [
        "cifar10, i-Blurry-50-10, 5 tasks, memory 500",
        "cifar10, i-Blurry-0-10, 5 tasks, memory 500",
        "cifar10, i-Blurry-100-10, 5 tasks, memory 500",
        "cifar10, i-Blurry-50-10, 5 tasks, memory 77",
    ]
    assert configuration_of(usual("er", disjoint=100, blur=0)) == configuration_of(usual("er", disjoint=100, blur=10))


def test_misses(tmp_path):
    found, _ = runs(tmp_path, *((usual("clib", seed), 90) for seed in (1, 2, 3)), (usual("clib-balanced"), 5))
    (block,) = compare_with_paper(found)
    assert {one.row for one in block.comparisons["A_AUC"] if one.misses} == {"clib"}
