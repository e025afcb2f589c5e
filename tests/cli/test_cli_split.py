"""`iblurry split` prints the split it is asked for, draws it, and writes and reads published files."""

import json
import re

import numpy as np
import pytest

from iblurry.components.edit import component
from iblurry.data.load import load
from iblurry.data.sources.arrays import save
from iblurry.streams import Stream
from iblurry.streams.order import i_blurry

DIGITS = load("digits")
LABELS = DIGITS.train.labels


@pytest.fixture
def shown(call):
    """What is printed; must succeed."""

    def shown(*words):
        said = call("split", *words)
        assert said.code == 0, said.err
        return said.out

    return shown


@pytest.fixture
def facts(shown):
    return lambda *words: json.loads(shown(*words, "--json"))


def test_json_is_the_order(facts):
    order = i_blurry(LABELS, tasks=5, disjoint=50, blur=10, seed=1)
    printed = facts()
    assert (printed["dataset"], printed["notes"]) == ("digits", [])
    assert [c["counts"] for c in printed["classes"]] == order.counts(LABELS).tolist()
    assert [c["total"] for c in printed["classes"]] == np.bincount(LABELS)[list(order.classes)].tolist()
    assert [c["role"] for c in printed["classes"]] == ["disjoint"] * 5 + ["blurry"] * 5
    assert [c["label"] for c in printed["classes"]] == list(range(10))
    assert printed["task_sizes"] == [len(task) for task in order.tasks]
    assert printed["samples"] == len(LABELS) == sum(printed["task_sizes"])


def test_tasks_are_chosen_for_the_users_data(facts, refused, here):
    save(load("shapes:classes=4,train=5,test=1"), here / "own.npz")
    assert {len(row["counts"]) for row in facts("--dataset", "own.npz")["classes"]} == {2}
    assert "tasks=3" in refused("split", "--dataset", "own.npz", "--tasks", 3)


def test_options_reach_the_split(facts):
    order = i_blurry(LABELS, tasks=2, disjoint=30, blur=25, seed=9, mode="uneven")
    printed = facts("--tasks", 2, "--disjoint", 30, "--blur", 25, "--seed", 9, "--mode", "uneven")
    assert [c["counts"] for c in printed["classes"]] == order.counts(LABELS).tolist()
    assert (printed["stream"]["IBlurry"]["mode"], printed["seed"]) == ("uneven", 9)


def rows(output):
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]
    return {cell[0]: cell[1:] for cell in cells}


@pytest.mark.parametrize("tasks", [5, 10])  # ten tasks are wider than the 80 columns of a pipe
def test_the_table_holds_every_count(shown, tasks):
    order = i_blurry(LABELS, tasks=tasks, disjoint=0, blur=50)
    table = rows(shown("--tasks", tasks, "--disjoint", 0, "--blur", 50))
    for c, role, counts in zip(order.classes, order.roles, order.counts(LABELS).tolist(), strict=True):
        assert table[DIGITS.classes[c]] == [role, *map(str, counts), str(sum(counts))]
    assert table["all"] == ["", *(str(len(task)) for task in order.tasks), f"{len(LABELS):,}"]


@pytest.mark.parametrize("name", ["Gaussian:sigma=0.05,periods=3", "Sigmoid:tasks=2"])
def test_a_stream_without_boundaries_is_shown_in_windows(shown, facts, here, name):
    order = component(Stream, name).order(DIGITS, 1)
    output = shown("--stream", name, "--figure", "x.png")
    table = rows(output)
    for c, counts in zip(order.classes, order.in_windows(10).counts(LABELS).tolist(), strict=True):
        assert table[DIGITS.classes[c]] == [*(str(count or "·") for count in counts), str(sum(counts))]
    assert "A_avg and F_last" in output
    assert (here / "x.png").stat().st_size > 10_000
    assert facts("--stream", name)["task_sizes"] == [len(task) for task in order.tasks]


@pytest.mark.parametrize("words", [("--blur", 0), ("--disjoint", 100)])
def test_says_when_it_is_the_disjoint_split(shown, facts, words):
    assert "(N=100, M=0)" in shown(*words)
    assert {c["role"] for c in facts(*words)["classes"]} == {"disjoint"}
    assert "(N=100, M=0)" not in shown("--disjoint", 100, "--blur", 0)


def test_says_what_is_left_out(facts):
    printed = facts("--tasks", 3, "--mode", "compatible")
    assert len(printed["classes"]) == 9
    (note,) = printed["notes"]
    dropped, whole, classes = (int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", note))
    assert (dropped, classes) == (whole - printed["samples"], 1)
    assert dropped > 0


@pytest.mark.parametrize(
    "words",
    [(), ("--blur", 0), ("--disjoint", 75, "--mode", "uneven"), ("--disjoint", 12.5, "--tasks", 2, "--mode", "uneven")],
)
def test_exported_files_are_read_back(facts, here, words):
    written = facts(*words, "--export", "sets")
    read = facts(*(word for word in words if word not in ("--mode", "uneven")), "--published", "sets")
    assert read["classes"] == written["classes"]
    assert read["stream"]["Published"]["folder"] == "sets"
    assert len(list((here / "sets").iterdir())) == len(read["task_sizes"]) + 1


def test_export_of_what_compatible_leaves(facts):
    written = facts("--disjoint", 80, "--tasks", 3, "--mode", "compatible", "--export", "sets")
    assert any("digits_split3_n67_m10_rand1_task0.json and 3 more" in note for note in written["notes"])
    assert facts("--disjoint", 67, "--tasks", 3, "--published", "sets")["classes"] == written["classes"]
