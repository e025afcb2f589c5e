"""Collected runs: small texts, whole and belonging together; read again to the same numbers."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from iblurry.errors import DataError, FolderError, InputError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Query, read
from iblurry.launch.launch import run
from iblurry.studies import collect as module
from iblurry.studies.collect import collect, read_collected, read_repeats
from tests.experiment.small import small
from tests.studies.written import usual, write_run

NAMES = {"experiment.json", "environment.json", "summary.json", "journal.jsonl"}


def names(place):
    return {path.name for path in place.iterdir()}


def test_a_real_run_is_collected_without_its_checkpoints(tmp_path):
    folder = run(small("clib"), tmp_path / "runs").folder
    place, state = collect(folder, tmp_path / "results")
    assert (place, state) == (tmp_path / "results/shapes" / folder.name, "new")
    assert names(place) == NAMES < names(folder)
    assert all((place / name).read_bytes() == (folder / name).read_bytes() for name in NAMES)
    (found,) = read_collected(tmp_path / "results")
    queries = [record.accuracy for record in read(folder / "journal.jsonl") if isinstance(record, Query)]
    assert found.metrics.a_auc == pytest.approx(np.mean(queries))
    assert found.experiment == small("clib")
    assert found.environment == RunFolder(folder).environment()


def test_again_is_the_same_and_another_journal_replaces(tmp_path):
    folder, *_ = write_run(tmp_path / "a", usual("er"), 60)
    other, *_ = write_run(tmp_path / "b", usual("er"), 70)
    assert collect(folder, tmp_path / "results")[1] == "new"
    assert collect(folder, tmp_path / "results")[1] == "the same"
    place, state = collect(other, tmp_path / "results")
    assert state == "replaced"
    assert (place / "journal.jsonl").read_bytes() == (other / "journal.jsonl").read_bytes()
    assert len(read_collected(tmp_path / "results")) == 1


def test_a_large_journal_is_packed_and_read_all_the_same(tmp_path, monkeypatch):
    folder, a_auc, _ = write_run(tmp_path / "runs", usual("er"), 60)
    plain = (folder / "journal.jsonl").read_bytes()
    place, _ = collect(folder, tmp_path / "results")
    monkeypatch.setattr(module, "LARGEST", len(plain) - 1)
    assert collect(folder, tmp_path / "results") == (place, "replaced")
    assert names(place) == NAMES - {"journal.jsonl"} | {"journal.jsonl.gz"}
    packed = (place / "journal.jsonl.gz").read_bytes()
    assert gzip.decompress(packed) == plain
    assert packed[4:8] == bytes(4)  # no date
    (found,) = read_collected(tmp_path / "results")
    assert 100 * found.metrics.a_auc == pytest.approx(a_auc)
    again, state = collect(place, tmp_path / "elsewhere")  # what was collected can be collected
    assert (names(again), state) == (names(place), "new")
    (place / "journal.jsonl.gz").write_bytes(packed[:-9])
    with pytest.raises(DataError, match=r"journal\.jsonl\.gz cannot be unpacked"):
        read_collected(tmp_path / "results")


def test_what_is_not_finished_or_not_its_own_is_refused(tmp_path):
    folder, *_ = write_run(tmp_path / "runs", usual("er"), 60)
    other, *_ = write_run(tmp_path / "runs", usual("clib"), 60)
    journal = (folder / "journal.jsonl").read_bytes()
    for wrong in ((other / "journal.jsonl").read_bytes(), journal[: journal.rindex(b'{"kind":"task"')]):
        (folder / "journal.jsonl").write_bytes(wrong)
        with pytest.raises(DataError, match="does not belong to experiment"):
            collect(folder, tmp_path / "results")
    (folder / "summary.json").unlink()
    with pytest.raises(InputError, match="no finished run"):
        collect(folder, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_nothing_collected_is_no_error_but_no_folder_is(tmp_path):
    assert read_collected(tmp_path) == []
    with pytest.raises(InputError, match="There is no folder"):
        read_collected(tmp_path / "nowhere")


def test_repeats_lie_apart_from_what_they_repeat(tmp_path):
    """Of any number of places; none of them is counted as one more seed."""
    first, *_ = write_run(tmp_path / "a", usual("er"), 60)
    collect(first, tmp_path / "results")
    places = []
    for place, out in (("b", "noise"), ("c", "noise/cpu")):
        other, *_ = write_run(tmp_path / place, usual("er"), 61)
        places.append(collect(other, tmp_path / "results" / out)[0])
    assert [run.folder.name for run in read_collected(tmp_path / "results")] == [first.name]
    assert [run.folder for run in read_repeats(tmp_path / "results")] == places
    assert read_repeats(tmp_path / "a") == []


def test_runs_in_an_older_format_are_refused(tmp_path):
    for place, reader in (("results/cifar10", read_collected), ("results/noise/cifar10", read_repeats)):
        folder, *_ = write_run(tmp_path / place, usual("er"), 60)
        about = json.loads((folder / "experiment.json").read_text())
        (folder / "experiment.json").write_text(json.dumps(about | {"format": 1, "experiment": {}}))
        with pytest.raises(FolderError, match=f"{folder} was written in format 1"):
            reader(tmp_path / "results")
