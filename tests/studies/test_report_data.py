"""What the report shows, recomputed from journals that the tests write."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from iblurry.analysis.describe import run_command
from iblurry.components.edit import edit
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.journal import Journal, NewClass, Query, Start, TaskEnd
from iblurry.studies.catalogue import get_study
from iblurry.studies.report.charts import CLASSES, POINTS, chart_data, class_maps, final_accuracies, thin
from iblurry.studies.report.compute import mean_compute
from iblurry.studies.report.data import report_data, stream_length
from iblurry.studies.report.sections import (
    beside_paper,
    commands_left,
    compare_environments,
    compare_settings,
)
from tests.studies.written import FLOPS, SAMPLES, spend, usual, write_run


def stop(folder, lines):
    """As if the run had been killed after so many lines of its journal."""
    (folder / "summary.json").unlink()
    kept = (folder / "journal.jsonl").read_text().splitlines(keepends=True)[:lines]
    (folder / "journal.jsonl").write_text("".join(kept) + '{"kind":"que' * bool(lines))
    if not lines:
        (folder / "journal.jsonl").unlink()


def rewrite(folder, *records):
    """Another journal for a run."""
    (folder / "journal.jsonl").unlink()
    with Journal(folder / "journal.jsonl") as journal:
        for record in records:
            journal.append(record)


def the_block(place, **options):
    (block,) = report_data(place, **options).blocks
    return block


def test_table_and_curve_are_those_of_the_journals(tmp_path):
    written = [write_run(tmp_path, usual("clib", seed), 70 + seed) for seed in (1, 2, 3)]
    write_run(tmp_path, usual("er", 1), 50)
    block = the_block(tmp_path)
    areas = np.array([area for _, area, _ in written])
    table, chart = block.finished.table, chart_data(block)
    assert table.rows == ("clib", "er")
    assert table.cells.xs("a_auc", level="metric")["n"].tolist() == [3, 1]
    assert str(table.ours("clib", "", "a_auc")) == f"{areas.mean():.2f} ± {areas.std(ddof=1):.2f}"
    assert table.cells.xs("a_auc", level="metric")["best"].tolist() == [True, False]
    line, alone = chart["lines"]
    curves = np.array([_accuracy(folder) for folder, *_ in written])
    assert line["x"] == list(range(10, SAMPLES + 1, 10))
    assert line["y"] == pytest.approx(curves.mean(0), abs=0.01)
    assert line["high"] == pytest.approx(curves.mean(0) + curves.std(0, ddof=1), abs=0.01)
    assert line["low"] == pytest.approx(curves.mean(0) - curves.std(0, ddof=1), abs=0.01)
    assert "low" not in alone
    assert line["rate"] == [0.1] * 10
    assert chart["ends"] == [20, 40, 60, 80, 100]
    assert chart["arrivals"] == [[1, "ship", [1, 2, 3]]]


def test_what_was_spent_is_the_last_account_of_each_run(tmp_path):
    areas = []
    for seed, teacher in ((1, 30), (2, 50)):
        folder, area, _ = write_run(tmp_path, usual("bic", seed), 60)
        spend(folder, training=1, losses=1, distillation=1, parts=1, queries=1)  # of an earlier task
        spend(folder, training=100, losses=0, distillation=teacher, parts=seed, queries=900)
        areas.append(area / (FLOPS * (300 + teacher + seed) / 1e12))
    older, *_ = write_run(tmp_path, usual("mir"), 60)
    spend(older, training=100, losses=0, parts=70, queries=900)
    for seed in (1, 2):
        folder, *_ = write_run(tmp_path, usual("er", seed), 60)
    spend(folder, training=1, queries=1)  # of one of its two runs
    waiting, *_ = write_run(tmp_path, usual("clib"), 60)
    stop(waiting, 5)
    block = the_block(tmp_path)
    found = {row.name: mean_compute(row) for row in block.rows}
    assert [name for name, mean in found.items() if mean] == ["bic", "mir"]
    bic, mir = found["bic"], found["mir"]
    assert (bic.n, bic.updates) == (2, SAMPLES)
    assert bic.forward == {
        "training": 100,
        "losses": 0,
        "distillation": 40,
        "parts": 1.5,
        "features": 0,
        "queries": 900,
    }
    assert bic.backward == {
        "training": 100,
        **dict.fromkeys(("losses", "distillation", "parts", "features", "queries"), 0),
    }
    assert bic.flops["training"] == 3 * 100 * FLOPS
    assert bic.training == (300 + 40 + 1.5) * FLOPS
    assert bic.per_tflop.mean == pytest.approx(np.mean(areas))
    assert (mir.forward["distillation"], mir.forward["parts"]) == (0, 70)
    assert mir.bytes["memory"] == 5_000_000
    assert (mir.bytes["aside"], mir.bytes["parts"]) == (0, 2_000_000)


def _accuracy(folder):
    records = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    return [100 * one["correct"][0] / one["total"][0] for one in records if one["kind"] == "query"]


def test_beside_the_paper(tmp_path):
    for seed in (1, 2, 3):
        write_run(tmp_path, usual("clib", seed), 71)
        write_run(tmp_path, edit(usual("clib", seed), "admission.step=0.2"), 60)
    block = the_block(tmp_path)
    found = block.finished.comparisons["A_AUC"]
    clib, own = (next(one for one in found if one.row == name) for name in block.names)
    mean = block.finished.table.ours("clib", "", "a_auc").mean
    assert (clib.paper.mean, clib.difference) == (70.26, pytest.approx(mean - 70.26))
    assert (own.paper, own.difference) == (None, None)
    assert own.verdict == "not in the paper: admission.step=0.2"
    unrun = next(one for one in found if one.method == "ewc")
    assert (unrun.row, unrun.paper.mean, unrun.verdict) == (None, 57.34, "not run yet")


def test_no_paper_where_it_has_nothing(tmp_path):
    write_run(tmp_path, usual("clib", memory=123), 70)
    assert beside_paper(the_block(tmp_path)) is None


def test_settings_what_differs_comes_first(tmp_path):
    write_run(tmp_path, usual("clib"), 70)
    write_run(tmp_path, edit(usual("clib"), "admission.step=0.2"), 70)
    differ, common = compare_settings(the_block(tmp_path))
    assert differ == {"admission.step": ["0.1", "0.2"]}
    assert (common["admission"], common["memory"], common["augment.flip"]) == ("Importance", "500", "true")
    assert "seed" not in common


def test_unfinished_runs_are_not_in_the_table_but_on_the_page(tmp_path):
    folders = [write_run(tmp_path, usual("clib", seed), 70)[0] for seed in (1, 2, 3)]
    write_run(tmp_path, usual("er", 4), 50)
    stop(folders[1], 5)  # start, class, queries at 10 and 20, end of the first task
    stop(folders[2], 0)
    data = report_data(tmp_path)
    (block,) = data.blocks
    assert (len(data.runs), data.finished) == (4, 2)
    assert [len(row.finished) for row in block.rows] == [1, 1]
    reached = {run.experiment.seed: (run.metrics.samples, stream_length(run)) for run in block.rows[0].runs}
    assert reached == {1: (100, 100), 2: (20, 100), 3: (0, 0)}
    going = next(line for line in chart_data(block)["lines"] if not line["done"])
    assert (going["x"], going["seeds"]) == ([10, 20], [2])
    assert [block.lacking_seeds(row) for row in block.rows] == [[4], [1, 2, 3]]
    assert commands_left(block) == [
        "iblurry run clib --dataset cifar10 --seeds 1,2,3,4",
        "iblurry run er --dataset cifar10 --seeds 1,2,3,4",
    ]


def test_a_study_at_a_smaller_scale(tmp_path):
    gss = get_study("gss")
    for one in gss.plan("cifar10", rows=["er", "clib"], scale=0.1):
        write_run(tmp_path, one.experiment, 50)
    write_run(tmp_path, usual("mir"), 50)  # of none of its rows
    data = report_data(tmp_path, study=gss)
    assert {run.experiment.method.name for run in data.runs} == {"clib", "er"}
    assert len(data.runs) == 6
    (lacks,) = data.missing
    assert [(one.method.name, one.seed, one.share) for one in lacks] == [("gss", seed, 0.1) for seed in (1, 2, 3)]


def test_only_unfinished_runs(tmp_path):
    folder, *_ = write_run(tmp_path, usual("clib"), 70)
    stop(folder, 1)
    block = the_block(tmp_path)
    assert (block.names, block.finished.table.rows) == (["clib"], ())
    assert (chart_data(block)["lines"], class_maps(block)) == ([], [])


def test_a_method_that_answers_once_is_a_level_line(tmp_path):
    write_run(tmp_path, usual("joint"), 90)
    (line,) = chart_data(the_block(tmp_path))["lines"]
    assert (line["kind"], line["x"]) == ("level", [0, SAMPLES])
    assert line["y"][0] == line["y"][1] == pytest.approx(90, abs=2)


def test_ends_of_tasks_that_changed_the_answers_are_marked(tmp_path):
    folder, *_ = write_run(tmp_path, usual("clib"), 70)
    start = Start(usual("clib").digest, 40, (20, 40), 20)
    queries = [Query(at, at // 20 - 1, (5,), (10,), 0.1, at) for at in (20, 40)]
    ends = [TaskEnd(at, at // 20 - 1, (8,), (10,), 0.1, at) for at in (20, 40)]
    rewrite(folder, start, NewClass(1, "ship"), queries[0], ends[0], queries[1], ends[1])
    assert chart_data(the_block(tmp_path))["lines"][0]["after"] == [[20, 80], [40, 80]]
    rewrite(folder, start, NewClass(1, "ship"), queries[0], TaskEnd(20, 0, (5,), (10,), 0.1, 20), queries[1])
    assert chart_data(the_block(tmp_path))["lines"][0]["after"] == []


def test_maps_class_by_class(tmp_path):
    folder, *_ = write_run(tmp_path, usual("clib"), 70)
    rewrite(
        folder,
        Start(usual("clib").digest, 40, (20, 40), 20),
        NewClass(1, "ship"),
        Query(20, 0, (5,), (10,), 0.1, 20),
        NewClass(21, "frog"),
        Query(40, 1, (10, 0), (10, 4), 0.1, 40),
        TaskEnd(40, 1, (10, 1), (10, 4), 0.1, 40),
    )
    block = the_block(tmp_path)
    (found,) = class_maps(block)
    assert found == {"row": 0, "seed": 1, "at": [20, 40], "labels": ["ship", "frog"], "cells": ["3264", "--00"]}
    assert final_accuracies(block) == {"clib": {"frog": 25.0, "ship": 100.0}}


def test_many_classes_share_the_lines_of_a_map(tmp_path):
    folder, *_ = write_run(tmp_path, usual("clib"), 70)
    many = 3 * CLASSES
    right = tuple(10 if c % 3 == 0 else 0 for c in range(many))
    rewrite(
        folder,
        Start(usual("clib").digest, many, (many,), many),
        *(NewClass(c + 1, f"c{c}") for c in range(many)),
        Query(many, 0, right, (10,) * many, 0.1, many),
    )
    (found,) = class_maps(the_block(tmp_path))
    assert (found["labels"][0], len(found["labels"])) == ("c0 to c2", CLASSES)
    assert set(found["cells"]) == {f"{33:02x}"}


@pytest.mark.parametrize("points", [1, 7, POINTS, POINTS + 1, 10_000])
def test_long_lines_are_thinned_evenly_and_keep_their_end(points):
    every, kept = thin(points)
    assert len(kept) <= POINTS
    assert kept[-1] == points - 1
    assert set(np.diff(kept)) <= {every}
    assert every == 1 or len(kept) > POINTS / 2 - 1


def test_versions_and_places(tmp_path):
    write_run(tmp_path, usual("clib", 1), 70, seconds=100)
    write_run(tmp_path, usual("clib", 2), 70, seconds=50, device="cpu")
    folder, *_ = write_run(tmp_path, usual("clib", 3), 70)
    (folder / "environment.json").unlink()
    same, differ = compare_environments(the_block(tmp_path))
    assert same == {}
    assert "device" in differ
    (folder / "environment.json").write_text(json.dumps({"torch": "2.13.0"}))
    assert compare_environments(the_block(tmp_path))[0] == {"torch": "2.13.0"}


def test_folders_of_data_sets_and_of_configurations(tmp_path):
    write_run(tmp_path / "cifar10", usual("clib", memory=200), 60)
    write_run(tmp_path / "cifar10", usual("clib"), 70)
    write_run(tmp_path / "mine", replace(usual("clib"), dataset="mine.npz"), 70)
    data = report_data(tmp_path)
    where = [block.configuration for block in data.blocks]
    assert [one.dataset for one in where] == ["cifar10", "cifar10", "mine.npz"]
    assert [one.memory for one in where[:2]] == [500, 200]  # the paper's first
    assert data.title == "Continual learning on cifar10 and mine.npz"
    assert report_data(tmp_path / "cifar10" / usual("clib").name).finished == 1


def test_a_study_keeps_its_own_and_says_what_is_missing(tmp_path):
    write_run(tmp_path, usual("clib"), 70)
    write_run(tmp_path, usual("clib", memory=123), 70)
    study = get_study("main")
    data = report_data(tmp_path, study=study)
    assert (len(data.runs), data.title) == (1, study.title)
    lacking = {group[0].method.name: group for group in data.missing}
    assert run_command(lacking["clib"]) == "iblurry run clib --dataset cifar10 --seeds 2,3"
    assert [one.seed for one in lacking["er"]] == [1, 2, 3]
    assert set(lacking) == set(study.rows)
    with pytest.raises(UnknownNameError, match="mian"):
        get_study("mian")


def test_a_study_without_runs(tmp_path):
    write_run(tmp_path, usual("clib", memory=123), 70)
    with pytest.raises(InputError, match="study main"):
        report_data(tmp_path, study=get_study("main"))


def test_no_runs_at_all(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        report_data(tmp_path / "nowhere")
    with pytest.raises(InputError, match="nothing at all"):
        report_data(tmp_path)
    for name in "abcdefgh":
        (tmp_path / name).touch()
    (tmp_path / "a-folder").mkdir()
    with pytest.raises(InputError, match="a, a-folder/, b, c, d, e and 3 more"):
        report_data(tmp_path)


def test_one_run_twice_is_refused(tmp_path):
    write_run(tmp_path / "a", usual("clib"), 70)
    write_run(tmp_path / "b", usual("clib"), 70)
    with pytest.raises(InputError, match=usual("clib").name):
        report_data(tmp_path)
