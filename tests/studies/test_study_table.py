"""The table of a study: the right runs in the right cells, beside the right numbers of the paper."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from iblurry.analysis.significance import compare_rows
from iblurry.errors import InputError, UnknownNameError
from iblurry.studies.catalogue import MAIN
from tests.studies.written import LEVELS, TINY, spend, tabulated, usual, write_run

RESULTS = Path(__file__).parent.parent.parent / "results" / "drawn-orders" / "cifar10"


@pytest.fixture(scope="module")
def table(runs):
    return tabulated(TINY, "cifar10", [runs])


def test_every_cell_recomputed(table):
    assert [*table.cells.index] == [
        (row, column, metric) for column in ("K=500", "K=1000") for row in TINY.rows for metric in ("a_auc", "f_last")
    ]
    for row in TINY.rows:
        for memory in (500, 1000):
            levels = np.array(LEVELS.get((row, memory), ()), dtype=float)
            cell = table.cells.loc[row, f"K={memory}", "a_auc"]
            values = table.by_seed(f"K={memory}", "a_auc").get(row, {})
            assert values == pytest.approx(dict(enumerate(levels, start=1)))
            assert cell["n"] == len(levels)
            if not len(levels):
                assert cell[["mean", "std", "difference", "verdict"]].isna().all()
                continue
            mean = levels.sum() / len(levels)
            assert cell["mean"] == pytest.approx(mean)
            assert cell["std"] == pytest.approx(np.sqrt(((levels - mean) ** 2).sum() / (len(levels) - 1)))
            assert cell["difference"] == pytest.approx(mean - cell["paper"].mean)


def paper_means(table, metric):
    papers = table.cells.xs(metric, level="metric")["paper"]
    return {place: paper and paper.mean for place, paper in papers.items()}


def test_the_papers_numbers_are_those_of_the_setting(table):
    assert paper_means(table, "a_auc") == {
        ("mir", "K=500"): 57.28,
        ("er", "K=500"): 57.46,
        ("clib", "K=500"): 70.26,
        ("mir", "K=1000"): 61.18,
        ("er", "K=1000"): 61.18,
        ("clib", "K=1000"): 73.0,
    }
    forgetting = paper_means(table, "f_last")
    assert forgetting["clib", "K=1000"] is None  # it prints that for Table 1's setting alone
    assert forgetting["clib", "K=500"] == 23.08


def test_what_is_not_the_papers_method_has_no_number_beside_it(runs):
    made = tabulated(TINY, "cifar10", [runs], methods=["clib", "clib schedule.initial_lr=0.001", "clib-released"])
    papers = paper_means(made, "a_auc")
    assert [papers[row, "K=500"] for row in made.rows] == [70.26, None, 70.26]
    assert not tabulated(TINY, "cifar10", [runs], paper=False).has_paper


def test_joint_training_is_a_bound_and_not_the_best(tmp_path):
    for method, level in {"joint": 96, "er": 57, "clib": 70}.items():
        for seed in (1, 2):
            write_run(tmp_path, usual(method, seed), level, wobble=0)
    made = tabulated(MAIN, "cifar10", [tmp_path], methods=["joint", "er", "clib"], metrics=["a_last"], seeds=[1, 2])
    assert made.cells["best"].tolist() == [False, False, True]
    assert [(pair.first, pair.second) for pair in compare_rows(made)] == [("clib", "joint"), ("clib", "er")]
    alone = tabulated(MAIN, "cifar10", [tmp_path], methods=["joint", "er"], metrics=["a_last"], seeds=[1, 2])
    assert not alone.cells["best"].any()  # one contender is a lone one


def test_rows_that_are_whole_are_not_run_again(tmp_path):
    for seed in (1, 2):
        for memory in (500, 1000):
            write_run(tmp_path, usual("er", seed, memory=memory), 57)
    made = tabulated(TINY, "cifar10", [tmp_path], seeds=[1, 2])
    assert made.commands == ["iblurry study tiny --dataset cifar10 --methods mir,clib --seeds 1,2"]


def test_the_paper_is_beside_data_wherever_they_lie():
    """ImageNet has no name without a path."""
    there = tabulated(MAIN, "imagenet:/data/ILSVRC", [])
    assert paper_means(there, "a_auc")["clib", ""] == 28.16
    assert paper_means(there, "a_last")["joint", ""] == 69.26
    assert paper_means(tabulated(MAIN, "imagenet:/data/ILSVRC,lazy=true", []), "a_auc")["clib", ""] == 28.16
    for other in ("imagenet:/data/ILSVRC,size=64", "folder:/data/ILSVRC"):
        assert paper_means(tabulated(MAIN, other, []), "a_auc")["clib", ""] is None


def test_missing_runs_and_what_runs_them(table, runs):
    assert table.missing_words == ["mir K=500", "er K=1000", "clib K=1000 seed 3"]
    assert table.commands == ["iblurry study tiny --dataset cifar10"]
    more = tabulated(TINY, "cifar10", [runs], methods=["clib", "gdumb", "er"], seeds=[1, 2, 4])
    assert more.missing_words == [
        "clib K=500 seed 4",
        "clib K=1000 seed 4",
        "gdumb",
        "er K=500 seed 4",
        "er K=1000",
    ]
    assert more.commands == ["iblurry study tiny --dataset cifar10 --methods clib,gdumb,er --seeds 1,2,4"]
    whole = tabulated(TINY, "cifar10", [runs], methods=["clib"], seeds=[1, 2])
    assert (whole.missing_words, whole.commands) == ([], [])


def test_the_first_place_that_has_a_run_counts(tmp_path):
    write_run(tmp_path / "a", usual("er", 1), 50, wobble=0)
    write_run(tmp_path / "b", usual("er", 1), 60, wobble=0)
    write_run(tmp_path / "b", usual("er", 2), 60, wobble=0)
    made = tabulated(TINY, "cifar10", [tmp_path / "a", tmp_path / "b"])
    assert made.by_seed("K=500", "a_auc")["er"] == pytest.approx({1: 50, 2: 60})


def test_unfinished_runs_do_not_count(tmp_path):
    folder, *_ = write_run(tmp_path, usual("er", 1), 50)
    write_run(tmp_path, usual("er", 2), 50)
    (folder / "summary.json").unlink()
    assert [*tabulated(TINY, "cifar10", [tmp_path]).runs["er", "K=500"]] == [2]


def test_a_number_that_no_run_has_is_none(tmp_path):
    """Joint training answers only once, at the end."""
    for seed in (1, 2):
        write_run(tmp_path, usual("joint", seed), 96, wobble=0)
    made = tabulated(TINY, "cifar10", [tmp_path], methods=["joint"], metrics=["a_auc", "a_last"])
    assert made.ours("joint", "K=500", "a_auc") is None
    assert made.ours("joint", "K=500", "a_last").mean == pytest.approx(96)
    assert paper_means(made, "a_last")["joint", "K=500"] == 96.03


@pytest.mark.parametrize(
    "images",
    [
        {"training": 2_000_000, "losses": 500_000, "distillation": 500_000, "parts": 1_000_000, "queries": 7_000_000},
        {"training": 2_000_000, "losses": 500_000, "parts": 1_500_000, "queries": 7_000_000},  # an older journal's
    ],
)
def test_compute_is_all_but_the_questions(images, tmp_path):
    """By hand: 3 * 2 + 0.5 + 0.5 + 1 million images of a million operations are 8 TFLOP."""
    folder, *_ = write_run(tmp_path, usual("er"), 60, wobble=0)
    spend(folder, **images)
    made = tabulated(TINY, "cifar10", [tmp_path], metrics=["compute", "per_compute"])
    assert made.by_seed("K=500", "compute")["er"] == {1: pytest.approx(8)}
    assert made.by_seed("K=500", "per_compute")["er"] == {1: pytest.approx(60 / 8)}


def test_refusals(runs):
    with pytest.raises(UnknownNameError, match=r"no metric called 'a_acu'\. Did you mean 'a_auc'"):
        tabulated(TINY, "cifar10", [runs], metrics=["a_acu"])
    with pytest.raises(UnknownNameError, match=r"no method called 'clob'\. Did you mean 'clib'"):
        tabulated(TINY, "cifar10", [runs], methods=["clob"])
    with pytest.raises(UnknownNameError, match=r"no data source called 'cifar01'\. Did you mean 'cifar10'"):
        tabulated(TINY, "cifar01", [runs])
    with pytest.raises(InputError, match="er is named 2 times; name each once"):
        tabulated(TINY, "cifar10", [runs], methods=["er", "clib", "er"])


def test_the_collected_runs_of_this_repository():
    """Of what lies in results/, read apart from the program."""
    made = tabulated(MAIN, "cifar10", [RESULTS], metrics=["a_auc", "a_avg", "a_last", "f_last"])
    for row in ("er", "clib"):
        folders = sorted(RESULTS.glob(f"{row}-cifar10-[123]-*"))
        assert len(folders) == 3
        summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
        for metric in ("a_auc", "a_avg", "a_last", "f_last"):
            values = 100 * np.array([summary[metric] for summary in summaries])
            assert [*made.by_seed("", metric)[row].values()] == pytest.approx(values)
            ours = made.ours(row, "", metric)
            assert (ours.mean, ours.std) == (pytest.approx(values.mean()), pytest.approx(values.std(ddof=1)))
    assert made.cells.loc[("er", "", "a_auc"), "verdict"] == "agrees"  # 58.32 ± 2.51 beside 57.46 ± 2.25
