"""The paper's numbers as data: spot values, names, warnings, and what its own text says of them."""

from __future__ import annotations

import pytest

from iblurry.errors import UnknownNameError
from iblurry.methods import METHODS
from iblurry.studies.paper import (
    COUNTERPARTS,
    Configuration,
    load_paper,
    paper_configurations,
    paper_number,
    paper_rows,
)

CIFAR10 = Configuration("cifar10", 50, 10, 500, 5)
CIFAR100 = Configuration("cifar100", 50, 10, 2000, 5)
TINY = Configuration("tinyimagenet", 50, 10, 4000, 5)
IMAGENET = Configuration("imagenet", 50, 10, 20000, 10)


@pytest.mark.parametrize(
    "method, metric, where, mean, std",
    [
        ("clib", "A_AUC", CIFAR10, 70.26, 1.28),
        ("clib", "A_avg", CIFAR10, 73.90, 0.22),
        ("clib", "F_last", CIFAR10, 23.08, 2.68),
        ("clib-released", "A_AUC", CIFAR10, 70.26, 1.28),
        ("er", "A_AUC", CIFAR10, 57.46, 2.25),
        ("er", "A_avg", CIFAR10, 60.17, 2.96),
        ("er-constant", "A_AUC", CIFAR10, 56.73, 1.73),
        ("ewc", "A_AUC", CIFAR10, 57.34, 2.10),
        ("ewc schedule=Constant", "A_avg", CIFAR10, 57.92, 3.26),
        ("ewc-released schedule=Constant", "A_avg", CIFAR10, 57.92, 3.26),
        ("bic", "F_last", CIFAR10, 22.50, 4.38),
        ("mir", "A_avg", CIFAR10, 61.93, 3.35),
        ("agem", "A_AUC", CIFAR10, 39.29, 2.88),
        ("gss", "A_avg", CIFAR10, 59.27, 4.36),
        ("gdumb", "A_AUC", CIFAR10, 53.20, 1.93),
        ("rm", "A_AUC", CIFAR10, 23.00, 1.43),
        ("clib-reservoir", "A_AUC", CIFAR10, 53.75, 2.11),
        ("clib-stream", "A_AUC", CIFAR10, 67.06, 1.51),
        ("clib-exponential", "A_avg", CIFAR10, 73.06, 1.35),
        ("joint", "final_accuracy", CIFAR10, 96.03, None),
        ("joint", "final_accuracy", Configuration("cifar10", 0, 30, 77, 3), 96.03, None),  # no matter what stream
        ("joint", "final_accuracy", CIFAR100, 79.89, None),
        ("joint", "final_accuracy", TINY, 53.05, None),
        ("joint", "final_accuracy", IMAGENET, 69.26, None),
        ("ewc", "A_AUC", CIFAR100, 35.35, 1.96),
        ("bic", "A_AUC", IMAGENET, None, None),
        ("bic", "A_AUC", Configuration("cifar10", 100, 0, 500, 5), 78.78, 1.52),  # M = 0 and 10 are one there
        ("clib", "A_AUC", Configuration("cifar10", 100, 10, 500, 5), 78.58, 2.09),
        ("clib", "A_AUC", Configuration("cifar10", 50, 10, 200, 5), 64.67, None),
        ("gdumb", "A_AUC", Configuration("cifar10", 50, 10, 1000, 5), 66.55, None),
        ("mir", "A_AUC", Configuration("cifar10", 50, 10, 1000, 5), 61.18, 1.08),
        ("er", "A_AUC", Configuration("cifar100", 50, 10, 2000, 10), None, None),
    ],
)
def test_spot_values(method, metric, where, mean, std):
    number = paper_number(method, metric, where)
    assert number is not None
    assert mean is None or number.mean == mean
    assert std is None or number.std == std
    assert (number.std is None) == (method == "joint" or where == IMAGENET)


def test_what_the_paper_does_not_report():
    assert paper_number("clib-balanced", "A_AUC", CIFAR10) is None
    assert paper_number("mine", "A_AUC", CIFAR10) is None
    assert paper_number("agem", "F_last", CIFAR10) is None  # only in a row that was commented out
    assert paper_number("clib", "A_AUC", Configuration("cifar10", 50, 20, 500, 5)) is None
    assert paper_number("clib", "final_accuracy", CIFAR10) is None
    with pytest.raises(UnknownNameError, match=r"called 'a_auc'\. Did you mean 'A_AUC'"):
        paper_number("clib", "a_auc", CIFAR10)


def test_every_method_of_the_paper_has_a_name_of_ours():
    assert {line["method"] for line in load_paper()["numbers"]} == set(COUNTERPARTS.values())
    assert {name.split()[0] for name in COUNTERPARTS} < {*METHODS}


def test_columns_and_rows_of_the_tables():
    assert paper_configurations()[0] == CIFAR10
    assert {CIFAR10, CIFAR100, TINY, IMAGENET} < set(paper_configurations())
    assert len(paper_configurations()) == 12
    assert {"clib", "er", "joint", "gss", "agem", "ewc schedule=Constant"} < set(paper_rows(CIFAR10))
    other = Configuration("cifar10", 0, 10, 500, 5)
    assert sorted(paper_rows(other)) == sorted(["ewc", "bic", "mir", "gdumb", "rm", "er", "clib"])
    assert paper_rows(Configuration("digits", 50, 10, 100, 5)) == []


def test_numbers_that_two_rows_share_are_warned_of():
    """Mean and spread equal to the last digit in one column are a copy error; nothing else is warned of."""
    lines = load_paper()["numbers"]
    columns = {}
    for line in lines:
        key = tuple(line[k] for k in ("dataset", "N", "M", "K", "tasks", "metric", "mean", "std"))
        columns.setdefault(key, []).append(line)
    twice = [line for same in columns.values() for line in same if len(same) > 1]
    assert len(twice) == 8
    assert [line for line in lines if "warning" in line] == [line for line in lines if line in twice]


def test_no_number_twice_and_all_in_percent():
    lines = load_paper()["numbers"]
    keys = [tuple(line[k] for k in ("dataset", "N", "M", "K", "tasks", "metric", "method")) for line in lines]
    assert len(set(keys)) == len(lines) == 224
    assert all(0 < line["mean"] < 100 and 1 <= min(line["tables"]) <= max(line["tables"]) <= 9 for line in lines)


def test_margins_by_the_tables_where_the_text_says_otherwise():
    for metric, margin in (("A_AUC", "11.88"), ("A_avg", "11.97")):
        rivals = ["ewc", "bic", "mir", "gdumb", "rm", "er"]
        best = max(paper_number(name, metric, CIFAR10).mean for name in rivals)
        assert f"{paper_number('clib', metric, CIFAR10).mean - best:.2f}" == margin
        assert margin in load_paper()["contradictions"][0]["table"]
