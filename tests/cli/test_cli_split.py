"""`iblurry split` prints the split it is asked for, draws it, and writes and reads published files."""

import json
import re

import click
import numpy as np
import pytest
from click.testing import CliRunner

from iblurry.cli.split import split
from iblurry.components.edit import component
from iblurry.data.load import load
from iblurry.data.sources.arrays import save
from iblurry.errors import DataError, InputError, UnknownNameError
from iblurry.streams import Stream
from iblurry.streams.order import i_blurry


def call(*arguments):
    result = CliRunner().invoke(split, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def facts(*arguments):
    return json.loads(call(*arguments, "--json"))


@pytest.fixture(scope="module")
def labels():
    return load("digits").train.labels


def test_json_is_the_order(labels):
    order = i_blurry(labels, tasks=5, disjoint=50, blur=10, seed=1)
    printed = facts()
    assert printed["dataset"] == "digits"
    assert [c["counts"] for c in printed["classes"]] == order.counts(labels).tolist()
    assert [c["total"] for c in printed["classes"]] == np.bincount(labels)[list(order.classes)].tolist()
    assert [c["role"] for c in printed["classes"]] == ["disjoint"] * 5 + ["blurry"] * 5
    assert [c["label"] for c in printed["classes"]] == list(range(10))
    assert printed["task_sizes"] == [len(task) for task in order.tasks]
    assert printed["samples"] == len(labels) == sum(printed["task_sizes"])
    assert printed["notes"] == []


def test_tasks_are_chosen_for_the_users_data(tmp_path):
    save(load("shapes:classes=4,train=5,test=1"), tmp_path / "own.npz")
    printed = facts("--dataset", tmp_path / "own.npz")
    assert {len(row["counts"]) for row in printed["classes"]} == {2}
    with pytest.raises(InputError, match="tasks=3"):
        facts("--dataset", tmp_path / "own.npz", "--tasks", 3)


def test_options_reach_the_split(labels):
    order = i_blurry(labels, tasks=2, disjoint=30, blur=25, seed=9, mode="uneven")
    printed = facts("--tasks", 2, "--disjoint", 30, "--blur", 25, "--seed", 9, "--mode", "uneven")
    assert [c["counts"] for c in printed["classes"]] == order.counts(labels).tolist()
    assert (printed["stream"]["IBlurry"]["mode"], printed["seed"]) == ("uneven", 9)


def rows(output):
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]
    return {cell[0]: cell[1:] for cell in cells}


@pytest.mark.parametrize("tasks", [5, 10])  # ten tasks are wider than the 80 columns of a pipe
def test_the_table_holds_every_count(labels, tasks):
    order = i_blurry(labels, tasks=tasks, disjoint=0, blur=50)
    table = rows(call("--tasks", tasks, "--disjoint", 0, "--blur", 50))
    names = load("digits").classes
    for c, role, counts in zip(order.classes, order.roles, order.counts(labels).tolist(), strict=True):
        assert table[names[c]] == [role, *map(str, counts), str(sum(counts))]
    assert table["all"] == ["", *(str(len(task)) for task in order.tasks), f"{len(labels):,}"]


@pytest.mark.parametrize("name", ["Gaussian:sigma=0.1", "Gaussian:sigma=0.05,periods=3", "Sigmoid:tasks=2"])
def test_a_stream_without_boundaries_is_shown_in_windows(labels, name, tmp_path):
    order = component(Stream, name).order(load("digits"), 1)
    output = call("--stream", name, "--figure", tmp_path / "x.png")
    table, names = rows(output), load("digits").classes
    for c, counts in zip(order.classes, order.in_windows(10).counts(labels).tolist(), strict=True):
        assert table[names[c]] == [*(str(count or "·") for count in counts), str(sum(counts))]
    assert "A_avg and F_last" in output
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert facts("--stream", name)["task_sizes"] == [len(task) for task in order.tasks]


@pytest.mark.parametrize("arguments", [("--blur", 0), ("--disjoint", 100)])
def test_says_when_it_is_the_disjoint_split(arguments):
    assert "this is the disjoint split (N=100, M=0)" in call(*arguments)
    assert {c["role"] for c in facts(*arguments)["classes"]} == {"disjoint"}
    assert "disjoint split" not in call("--disjoint", 100, "--blur", 0)
    assert "disjoint split" not in call()


def test_says_what_is_left_out():
    printed = facts("--tasks", 3, "--mode", "compatible")
    assert len(printed["classes"]) == 9
    sentence = next(note for note in printed["notes"] if "left out" in note)
    dropped, whole = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", sentence)[:2])
    assert dropped == whole - printed["samples"] > 0
    assert "classes left out: 1" in sentence


@pytest.mark.parametrize(
    "arguments",
    [(), ("--blur", 0), ("--disjoint", 75, "--mode", "uneven"), ("--disjoint", 12.5, "--tasks", 2, "--mode", "uneven")],
)
def test_exported_files_are_read_back(tmp_path, arguments):
    written = facts(*arguments, "--export", tmp_path / "sets")
    arguments = [a for a in arguments if a not in ("--mode", "uneven")]
    read = facts(*arguments, "--published", tmp_path / "sets")
    assert read["classes"] == written["classes"]
    assert read["stream"]["Published"]["folder"] == str(tmp_path / "sets")
    assert len(list((tmp_path / "sets").iterdir())) == len(read["task_sizes"]) + 1


def test_export_of_what_compatible_leaves(tmp_path):
    written = facts("--disjoint", 80, "--tasks", 3, "--mode", "compatible", "--export", tmp_path)
    assert any("digits_split3_n67_m10_rand1_task0.json and 3 more" in note for note in written["notes"])
    assert facts("--disjoint", 67, "--tasks", 3, "--published", tmp_path)["classes"] == written["classes"]


def test_figure(tmp_path):
    assert f"Drew {tmp_path / 'a.svg'}." in call("--figure", tmp_path / "a.svg").replace("\n", "")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    "arguments, error, sentence",
    [
        (("--disjoint", 75), InputError, "nearest that can is 50 or 100"),
        (("--dataset", "digitz"), UnknownNameError, "Did you mean 'digits'"),
        (("--mode", "compatibel"), InputError, "compatibel.*compatible"),
        (("--published", "nowhere"), DataError, r"nowhere has no .*_split5_n50_m10"),
        (("--published", "nowhere", "--mode", "uneven"), InputError, "give one of the two"),
    ],
)
def test_errors_are_sentences(arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        call(*arguments)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for option, place in (("--export", "file/sets"), ("--figure", "file/a.png"), ("--figure", "a.gif")):
        with pytest.raises(click.BadParameter, match=place.split("/")[0].replace(".", r"\.")):
            split.make_context("split", [option, str(tmp_path / place)])
