"""What the report shows, recomputed from journals that the tests write."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from iblurry import compute
from iblurry.analysis.report.compute import HOLDINGS, PURPOSES, mean_compute
from iblurry.analysis.report.report import stream_length
from iblurry.analysis.report.sections import (
    compare_environments,
    compare_settings,
    final_accuracies,
)
from iblurry.components.edit import edit
from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.journal import Journal, NewClass, Query, Start, TaskEnd
from iblurry.learner import cost
from iblurry.studies.catalogue import get_study
from iblurry.studies.report import report_data
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
    assert bic.updates == SAMPLES
    zero = dict.fromkeys(PURPOSES, 0)
    assert bic.counts["forward"] == zero | {"training": 100, "distillation": 40, "parts": 1.5, "queries": 900}
    assert bic.counts["backward"] == zero | {"training": 100}
    assert bic.counts["flops"]["training"] == 3 * 100 * FLOPS
    assert bic.per_tflop == pytest.approx(np.mean(areas))
    assert bic.training == (300 + 40 + 1.5) * FLOPS
    assert (mir.counts["forward"]["distillation"], mir.counts["forward"]["parts"]) == (0, 70)
    assert mir.counts["bytes"] == dict.fromkeys(HOLDINGS, 0) | {"memory": 5e6, "parts": 2e6, "network": 500}
    assert {*PURPOSES} == {*compute.PURPOSES}
    assert {*HOLDINGS} == {*cost.HOLDINGS}


def test_beside_the_paper(tmp_path):
    for seed in (1, 2, 3):
        write_run(tmp_path, usual("clib", seed), 71)
        write_run(tmp_path, edit(usual("clib", seed), "admission.step=0.2"), 60)
    block = the_block(tmp_path)
    mean = 100 * np.mean([run.metrics.a_auc for run in block.rows[0].finished])
    for text in (
        "70.26 ± 1.28",
        f"{mean - 70.26:+.2f}",
        "not in the paper: admission.step=0.2",
        "57.34",
        "not run yet",
    ):
        assert text in block.beside_paper


def test_no_paper_where_it_has_nothing(tmp_path):
    write_run(tmp_path, usual("clib", memory=123), 70)
    assert the_block(tmp_path).beside_paper is None


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
    assert [block.lacking_seeds(row) for row in block.rows] == [[4], [1, 2, 3]]


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


def test_the_numbers_of_classes_at_the_end(tmp_path):
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
    assert final_accuracies(the_block(tmp_path)) == {"clib": {"frog": 25.0, "ship": 100.0}}


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
    where = [block.about for block in data.blocks]
    assert [about.split(",")[0] for about in where] == ["cifar10", "cifar10", "mine.npz"]
    assert [about.rsplit(" ", 1)[1] for about in where[:2]] == ["500", "200"]  # the paper's first
    assert data.title == "Continual learning on cifar10 and mine.npz"
    assert report_data(tmp_path / "cifar10" / usual("clib").name).finished == 1


def test_a_study_keeps_its_own_and_says_what_is_missing(tmp_path):
    write_run(tmp_path, usual("clib"), 70)
    write_run(tmp_path, usual("clib", memory=123), 70)
    study = get_study("main")
    data = report_data(tmp_path, study=study)
    assert (len(data.runs), data.title) == (1, study.title)
    lacking = {group[0].method.name: group for group in data.missing}
    assert [one.seed for one in lacking["clib"]] == [2, 3]
    assert [one.seed for one in lacking["er"]] == [1, 2, 3]
    assert set(lacking) == set(study.rows)
    with pytest.raises(UnknownNameError, match="mian"):
        get_study("mian")


def test_a_study_without_runs(tmp_path):
    write_run(tmp_path, usual("clib", memory=123), 70)
    with pytest.raises(InputError, match="study main"):
        report_data(tmp_path, study=get_study("main"))


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_no_runs_at_all(tmp_path, name):
    with pytest.raises(InputError, match=str(tmp_path / name)):
        report_data(tmp_path / name)
