"""The table of `iblurry run` and `iblurry show`."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from iblurry.analysis.formats import runs_to_json, runs_to_markdown, runs_to_terminal
from iblurry.analysis.metrics import MeanStd
from iblurry.analysis.table import tabulate_runs
from iblurry.experiment.metrics import Metrics
from iblurry.experiment.result import Result


def run(a_auc, a_avg=0.5, a_last=0.5, f_last=0.1):
    return Metrics(a_auc=a_auc, a_avg=a_avg, a_last=a_last, f_last=f_last, samples=10, updates=10, queries=2)


def table(groups):
    """Of runs that have metrics and seeds alone."""
    experiments = [SimpleNamespace(seed=seed, pretrained=False) for seed in range(max(map(len, groups.values())))]
    runs = {row: zip(experiments, some, strict=False) for row, some in groups.items()}
    return tabulate_runs(
        {row: [Result(Path(), experiment, [], one, None) for experiment, one in some] for row, some in runs.items()}
    )


def ours(groups, row, metric):
    return table(groups).ours(row, "", metric)


GROUPS = {
    "er": [run(0.5, 0.60, 0.4, 0.30), run(0.6, 0.62, 0.5, 0.20), run(0.7, 0.61, 0.3, 0.25)],
    "clib": [run(0.7, 0.59, 0.4, 0.10), run(0.8, 0.60, 0.6, 0.15), run(0.72, 0.6, 0.5, 0.05)],
}


def test_cells_are_mean_and_sample_deviation_in_percent():
    assert ours(GROUPS, "er", "a_auc") == MeanStd(pytest.approx(60.0), pytest.approx(10.0))
    values = np.array([70, 80, 72])
    std = np.sqrt(((values - values.mean()) ** 2).sum() / 2)
    assert ours(GROUPS, "clib", "a_auc") == MeanStd(pytest.approx(74.0), pytest.approx(std))
    assert ours(GROUPS, "clib", "f_last") == MeanStd(pytest.approx(10.0), pytest.approx(5.0))


def test_one_seed_has_no_deviation():
    one = {"er": [run(0.7026)]}
    assert ours(one, "er", "a_auc") == MeanStd(pytest.approx(70.26), None)
    assert "| er | 1 | 70.26 | 50.00 | 50.00 | 10.00 |" in runs_to_markdown(table(one))
    assert "one seed" in runs_to_markdown(table(one))


def test_a_number_that_one_seed_lacks_is_not_averaged_over_the_others():
    two = {"er": [run(0.7), run(0.7, f_last=None)]}
    assert ours(two, "er", "f_last") is None
    assert "| er | 2 | 70.00 ± 0.00 | 50.00 ± 0.00 | 50.00 ± 0.00 | – |" in runs_to_markdown(table(two))


def test_joint_training_is_a_bound_and_not_the_best():
    text = runs_to_markdown(table({"joint": [run(None, a_last=0.9)] * 3} | GROUPS))
    assert "| joint | 3 | – | 50.00 ± 0.00 | 90.00 ± 0.00 | 10.00 ± 0.00 |" in text
    assert runs_to_markdown(table(GROUPS)).splitlines()[2:4] == text.splitlines()[3:5]


def test_markdown_is_exactly_this():
    assert runs_to_markdown(table(GROUPS)) == (
        "| method | n | A_AUC ↑ | A_avg ↑ | A_last ↑ | F_last ↓ |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| er | 3 | 60.00 ± 10.00 | **61.00 ± 1.00** | 40.00 ± 10.00 | 25.00 ± 5.00 |\n"
        "| clib | 3 | **74.00 ± 5.29** | 59.67 ± 0.58 | **50.00 ± 10.00** | **10.00 ± 5.00** |\n"
        "\n"
        "Percent, mean ± sample standard deviation (n - 1) over 3 seeds.\n"
    )


def test_ties_as_printed_are_all_bold_and_a_lone_row_is_not():
    tied = runs_to_markdown(table({"a": [run(0.70001)], "b": [run(0.70002)], "c": [run(0.6)]}))
    assert tied.count("**70.00**") == 2
    assert "**60.00**" not in tied
    assert "**" not in runs_to_markdown(table({"a": [run(0.7)]}))


def test_a_negative_zero_is_a_zero():
    assert "-0.00" not in runs_to_markdown(table({"a": [run(0.7, f_last=-1e-9)]}))


def test_the_terminal_shows_the_same_with_the_best_in_bold():
    text = runs_to_terminal(table(GROUPS))
    assert re.findall(r"\x1b\[1m *([\d.]+ ± [\d.]+)\x1b", text) == [
        "61.00 ± 1.00",
        "74.00 ± 5.29",
        "50.00 ± 10.00",
        "10.00 ± 5.00",  # F_last: lower is better
    ]
    assert "60.00 ± 10.00" in text
    assert "mean ± sample standard deviation (n - 1) over 3 seeds" in text


def test_names_are_not_markup():
    strange = {"[red]x|y": [run(0.7)]}
    assert "[red]x|y" in runs_to_terminal(table(strange))
    assert "| [red]x\\|y | 1 |" in runs_to_markdown(table(strange))


def test_the_caption_says_n_where_seeds_differ():
    assert "over n seeds" in runs_to_markdown(table({"a": [run(0.7)], "b": [run(0.7), run(0.8)]}))


def test_json_has_every_number_in_full():
    about = runs_to_json(table(GROUPS))
    assert about["unit"] == "percent"
    assert [row["method"] for row in about["rows"]] == ["er", "clib"]
    mean = np.mean([100 * each.a_auc for each in GROUPS["clib"] if each.a_auc is not None])
    assert about["rows"][1]["a_auc"]["mean"] == pytest.approx(mean, abs=1e-12)
    assert runs_to_json(table({"a": [run(None)]}))["rows"][0]["a_auc"] is None
