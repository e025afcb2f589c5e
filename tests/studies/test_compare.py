"""Our runs beside the paper's numbers: the right ones, by the stated rule, and nothing passed off as the paper's."""

from __future__ import annotations

import numpy as np
import pytest

from iblurry.analysis.table import MeanStd, PaperNumber, judge, standard_error
from iblurry.components.edit import edit
from iblurry.streams.stream import Published
from iblurry.studies.collect import read_run
from iblurry.studies.paper import (
    compare_with_paper,
    configuration_of,
    describe_verdict,
    find_counterpart,
    paper_configurations,
    paper_number,
)
from tests.studies.written import usual, write_run


def lines(block, metric="A_AUC"):
    """Its comparisons by one metric."""
    frame = block.comparisons
    return [*frame[frame["metric"] == metric].itertuples()]


def verdict(paper, ours, n):
    return describe_verdict(judge(paper, ours, n), paper, n)


def runs(tmp_path, *experiments_and_levels):
    """Written, and read again; with what their A_AUC and A_avg must be."""
    written = [write_run(tmp_path, experiment, level) for experiment, level in experiments_and_levels]
    return [read_run(folder) for folder, *_ in written], np.array([numbers for _, *numbers in written])


@pytest.mark.parametrize(
    "mean, std, n, words",
    [
        (71.8, 0.6, 3, "agrees"),  # standard error √(1.28²/3 + 0.6²/3) = 0.82
        (72.0, 0.6, 3, "above"),
        (68.5, 0.6, 3, "below"),
        (68.5, 0.9, 3, "agrees"),  # a wider spread: 0.90
        (68.5, 0.9, 12, "below"),  # more seeds: 0.78
        (68.5, 0.6, 2, "below (provisional)"),
        (73.2, None, 1, "agrees (provisional)"),  # one run that spreads as the paper's: √(1.28²/3 + 1.28²) = 1.48
        (73.3, None, 1, "above (provisional)"),
    ],
)
def test_verdicts(mean, std, n, words):
    assert verdict(PaperNumber(70.26, 1.28, (1,)), MeanStd(mean, std), n) == words
    copied = PaperNumber(70.26, 1.28, (1,), warning="a copy")
    assert verdict(copied, MeanStd(mean, std), n) == "not judged: see the warning"


def test_a_number_without_a_spread_is_judged_by_ours():
    """As one more run of ours: √(0.3² + 0.3²/3) = 0.35."""
    alone = PaperNumber(96.03, None, (1,))
    assert standard_error(alone, MeanStd(95.8, 0.3), 3) == pytest.approx(0.3464, abs=1e-4)
    assert verdict(alone, MeanStd(95.4, 0.3), 3) == "agrees"
    assert verdict(alone, MeanStd(95.3, 0.3), 3) == "below"
    assert verdict(alone, MeanStd(96.03, None), 1) == "not judged: no spread"


@pytest.mark.slow
def test_three_seeds_hold_as_much_of_chance_as_the_page_says():
    """Two normal samples of three with nothing between them: equal spreads, and one that is far smaller."""
    rng = np.random.default_rng(1)
    for ratio, share in ((1, 0.88), (0.01, 0.82)):
        first, second = rng.normal(size=(20_000, 3)), ratio * rng.normal(size=(20_000, 3))
        words = [
            judge(PaperNumber(a.mean(), a.std(ddof=1), (1,)), MeanStd(b.mean(), b.std(ddof=1)), 3)
            for a, b in zip(first, second, strict=True)
        ]
        assert np.mean([word == "agrees" for word in words]) == pytest.approx(share, abs=0.02)


def test_numbers_recomputed(tmp_path):
    found, numbers = runs(tmp_path, *((usual("clib", seed), 71) for seed in (1, 2, 3)))
    (block,) = compare_with_paper(found)
    assert block.configuration == paper_configurations()[0]
    for metric, values in zip(("A_AUC", "A_avg"), numbers.T, strict=True):
        (one,) = [one for one in lines(block, metric) if one.row == "clib"]
        assert (one.method, one.n) == ("clib", 3)
        mean = values.sum() / 3
        assert one.ours.mean == pytest.approx(mean)
        assert one.ours.std == pytest.approx(np.sqrt(((values - mean) ** 2).sum() / 2))
        assert one.paper == paper_number("clib", metric, block.configuration)
        assert one.difference == pytest.approx(mean - one.paper.mean)
        assert one.standard_error == pytest.approx(np.sqrt(one.paper.std**2 / 3 + values.var(ddof=1) / 3))
    assert block.comparisons.groupby("metric")["row"].agg(set).to_dict() == {
        "A_AUC": {None, "clib"},
        "A_avg": {None, "clib"},
        "F_last": {None, "clib"},
        "final_accuracy": {None},
    }


def test_a_method_that_departs_is_not_the_papers(tmp_path):
    short = usual("clib", samples=100)
    small = edit(usual("er"), "network=mlp")
    found, _ = runs(tmp_path, (short, 71), (small, 58), (usual("clib-balanced"), 70))
    (block,) = compare_with_paper(found)
    own = {one.row: one for one in lines(block) if one.row}
    assert [one.paper for one in own.values()] == [None, None, None]
    assert [one.difference for one in own.values()] == [None, None, None]
    verdicts = {row.split()[0]: one.verdict for row, one in own.items()}
    assert verdicts == {
        "clib": "not in the paper: samples=100",
        "er": "not in the paper: network=mlp",
        "clib-balanced": "not in the paper",
    }
    waiting = {one.method for one in lines(block) if one.verdict == "not run yet"}
    assert {"clib", "er"} < waiting


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
        (one,) = lines(block, "final_accuracy")
        assert (one.row, one.paper.mean) == ("joint", 96.03)
        assert one.ours.mean == pytest.approx(95.9, abs=2)
        assert not [one for one in lines(block) if one.row]


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


def published(folder="splits", content="of these files", **numbers):
    return Published(folder=folder, content=content, **numbers)


def test_published_and_drawn_orders_are_never_averaged(tmp_path):
    """The published ones come first, have the paper's missing rows and the verdict; folders do not tell runs apart."""
    folders = {1: "splits", 2: "elsewhere", 3: "splits"}
    found, numbers = runs(
        tmp_path,
        *((usual("er", seed), 80) for seed in (1, 2, 3)),
        *((usual("er", seed, stream=published(folders[seed])), 57) for seed in folders),
        (usual("clib", 1), 70),
        (usual("mir", 1, stream=published("elsewhere")), 57),
    )
    first, second = compare_with_paper(found)
    assert [block.configuration.published for block in (first, second)] == [True, False]
    assert str(first.configuration) == "cifar10, i-Blurry-50-10 (published), 5 tasks, memory 500"
    assert (set(first.groups), set(second.groups)) == ({"er", "mir"}, {"er", "clib"})
    ours, drawn = (next(one for one in lines(b) if one.row == "er") for b in (first, second))
    assert ours.ours.mean == pytest.approx(numbers[3:6, 0].mean())
    assert drawn.ours.mean == pytest.approx(numbers[:3, 0].mean())
    assert (ours.paper, ours.verdict, ours.misses) == (drawn.paper, "agrees", False)
    assert (drawn.verdict, drawn.misses) == ("not judged: the published orders are", False)
    waiting = [{one.method for one in lines(block) if one.row is None} for block in (first, second)]
    assert "clib" in waiting[0]
    assert not waiting[1]
    (clib,) = [one for one in lines(second) if one.row == "clib"]
    assert clib.verdict == "agrees (provisional)"  # on published orders it has no runs


def test_published_orders_of_other_numbers_are_the_papers_configurations(tmp_path):
    streams = [published(disjoint=0), published(disjoint=100, blur=0), published()]
    found, _ = runs(tmp_path, *((usual("clib", stream=stream), 70) for stream in streams))
    blocks = compare_with_paper(found)
    assert [block.configuration.column for block in blocks] == [
        configuration_of(usual("clib", disjoint=share)) for share in (50, 0, 100)
    ]
    papers = [next(one.paper.mean for one in lines(b) if one.row == "clib") for b in blocks]
    assert papers == [70.26, 68.87, 78.58]
