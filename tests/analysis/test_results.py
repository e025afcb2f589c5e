"""The two tables of runs: a line per run, a line per query."""

import json
import shutil

import numpy as np
import pytest

import iblurry
from iblurry.errors import DataError, InputError, UnknownNameError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Evaluation, Journal, Logged, Query, Stopped, read
from iblurry.experiment.result import read_result
from tests.studies.written import spend, usual, write_run

SEEDS = (1, 2, 3)


@pytest.fixture
def runs(tmp_path):
    for seed in SEEDS:
        write_run(tmp_path, usual("er", seed), 50)
        write_run(tmp_path, usual("clib", seed, memory=200), 70)
    return tmp_path


def test_a_line_per_run_says_what_its_files_say(runs):
    frame = iblurry.results(runs)
    assert len(frame) == 6
    assert frame["finished"].all()
    assert set(frame["commit"]) == {"0123456789abcdef0123456789abcdef01234567"}
    for line in frame.itertuples():
        read = read_result(RunFolder(line.folder))
        assert (line.run, line.method, line.seed) == (
            read.folder.name,
            read.experiment.method.name,
            read.experiment.seed,
        )
        assert (line.memory, line.stream, line.dataset) == (read.experiment.memory, "IBlurry", "cifar10")
        assert (line.a_auc, line.a_avg, line.a_last, line.f_last) == pytest.approx(
            list(vars(read.metrics).values())[:4]
        )
        assert (line.seen, line.updates, line.queries, line.seconds) == (100, 100, 10, 100.0)


def test_rows_are_those_of_show_and_fields_that_differ_are_columns(runs):
    frame = iblurry.results(runs)
    assert set(frame["row"]) == {"er", "clib memory=200"}
    by_hand = [100 * frame.loc[frame["row"] == "er", "a_auc"].iloc[n] for n in range(3)]
    found = frame.groupby("row")["a_auc"].agg(["mean", "std"]).loc["er"] * 100
    assert found.tolist() == pytest.approx([np.mean(by_hand), np.std(by_hand, ddof=1)])
    assert {"memory", "admission", "schedule"} <= {*frame}
    assert not {"query_every", "share", "tasks"} & {*frame}
    one = iblurry.results(runs / usual("er").name)
    assert iblurry.results(runs / usual("er").name, fields=["share"])["share"].tolist() == [1.0]
    with pytest.raises(UnknownNameError, match="shrae"):
        iblurry.results(runs, fields=["shrae"])
    assert {"method", "dataset", "seed", "stream", "memory", "network"} <= {*one}
    assert "admission" not in one


def test_curves_have_a_line_per_query_whose_mean_is_a_auc(runs):
    frame, lines = iblurry.results(runs), iblurry.curves(runs)
    areas = lines.groupby("folder")["accuracy"].mean()
    assert areas[frame["folder"]].tolist() == pytest.approx(frame["a_auc"].tolist())
    assert lines.groupby("run").size().tolist() == [10] * 6
    assert "query" not in lines
    more = iblurry.curves(runs, task_ends=True)
    assert more["query"].sum() == len(lines)
    ends = more[~more["query"]].groupby("folder")["accuracy"].mean()
    assert ends[frame["folder"]].tolist() == pytest.approx(frame["a_avg"].tolist())
    first = read(runs / usual("er").name / "journal.jsonl")
    asked = [one for one in first if isinstance(one, Query)]
    own = lines[lines["run"] == usual("er").name]
    for name, field in {"seen": "at", "task": "task", "rate": "rate", "updates": "updates"}.items():
        assert own[name].tolist() == [getattr(one, field) for one in asked]


def test_compute_and_what_callbacks_logged(tmp_path):
    folder, *_ = write_run(tmp_path, usual("er"), 50)
    other, *_ = write_run(tmp_path, usual("er", 2), 50)
    spend(folder, training=10, losses=4, distillation=0, parts=1, queries=100)
    with Journal(folder / "journal.jsonl") as journal:
        journal.append(Logged(100, "mine", 0.25))
        journal.append(Logged(100, "mine", 0.75))
        journal.append(Stopped(100, "good enough"))
    frame = iblurry.results(tmp_path, metrics=["aaa", "forgetting:max"]).set_index("run")
    mine = frame.loc[folder.name]
    assert mine["training_flops"] == 1_000_000 * (10 * 3 + 4 + 1)
    assert mine["held_bytes"] == 7_000_500
    assert (mine["mine"], mine["stopped"]) == (0.75, "good enough")
    assert mine["aaa"] == pytest.approx(mine["a_auc"])  # of one class
    assert mine["forgetting:max"] == read_result(RunFolder(folder)).metric("forgetting:max")
    assert frame.loc[other.name, ["training_flops", "held_bytes", "mine", "stopped"]].isna().all()


def test_unfinished_runs_count_as_far_as_they_got(runs):
    begun, empty = runs / usual("er", 1).name, runs / usual("er", 2).name
    for folder in (begun, empty):
        (folder / "summary.json").unlink()
    lines = (begun / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (begun / "journal.jsonl").write_bytes(b"".join(lines[:6]) + b'{"kind":"que')
    (empty / "journal.jsonl").unlink()
    frame = iblurry.results(runs).set_index("run")
    assert frame["finished"].sum() == 4
    asked = [one for one in read(begun / "journal.jsonl", partial=True) if isinstance(one, Evaluation)]
    assert frame.loc[begun.name, "seen"] == asked[-1].at
    assert frame.loc[begun.name, "a_auc"] == pytest.approx(
        np.mean([one.accuracy for one in asked if isinstance(one, Query)])
    )
    assert frame.loc[empty.name, ["seen", "queries"]].tolist() == [0, 0]
    assert np.isnan(frame.loc[empty.name, "a_auc"])
    assert set(iblurry.curves(runs)["run"]) == set(frame.index) - {empty.name}


def test_folders_without_runs_and_damaged_ones_are_named(runs, tmp_path_factory, monkeypatch):
    nothing = tmp_path_factory.mktemp("nothing")
    with pytest.raises(InputError, match=nothing.name):
        iblurry.results(nothing)
    monkeypatch.chdir(nothing)
    with pytest.raises(InputError, match="runs"):  # the usual folder
        iblurry.curves()
    shutil.copytree(runs, nothing / "runs")
    assert len(iblurry.results()) == 6
    assert len(iblurry.results(nothing)) == 6  # a folder of folders of runs
    assert len(iblurry.results("runs", nothing / "runs" / usual("er").name)) == 6  # each run once
    broken = runs / usual("er").name / "journal.jsonl"
    broken.write_text(broken.read_text().replace('"at":10,', '"at":11,', 1) + "{}")
    with pytest.raises(DataError, match=broken.parent.name):
        iblurry.results(runs)
    settings = runs / usual("er", 2).name / "experiment.json"
    settings.write_text(json.dumps({"format": 99}))
    with pytest.raises(iblurry.IblurryError, match=settings.parent.name):
        iblurry.results(settings.parent)
