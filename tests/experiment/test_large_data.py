"""Data that stay on the disk: the same run, the same answers, also when it is left and taken up again."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import torch
from PIL import Image

from iblurry.data.dataset import Dataset
from iblurry.data.images import PictureFiles, decoders_for
from iblurry.data.load import load
from iblurry.errors import DataError, StoppedError
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.evaluator import Evaluator
from iblurry.launch.launch import run
from tests.experiment.small import DATA, At, CrashError, crash, kept, small


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shapes as files."""
    data, root = load(DATA), tmp_path_factory.mktemp("shapes")
    for part, held in (("train", data.train), ("test", data.test)):
        for row, label in enumerate(held.labels):
            file = root / part / data.classes[label] / f"{row:04}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(held.images[row][0]).save(file)
    return root


@pytest.fixture(autouse=True)
def two_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IBLURRY_DECODERS", "2")


def lazy(place: Path) -> Dataset:
    return load(f"folder:{place},size=8,channels=1,lazy=true")


def whole(place: Path) -> Dataset:
    return load(f"folder:{place},size=8,channels=1,lazy=false")


@pytest.mark.quick("er")
@pytest.mark.parametrize("name", ["er", "clib"])
def test_a_run_is_the_same(name: str, place: Path, tmp_path: Path) -> None:
    one = small(name)
    first = run(one, tmp_path / "whole", dataset=whole(place))
    second = run(one, tmp_path / "lazy", dataset=lazy(place))
    assert kept(second.folder) == kept(first.folder)
    assert second.summary is not None


@pytest.mark.slow
def test_a_run_that_crashed_goes_on(place: Path, tmp_path: Path) -> None:
    one, data = small("clib"), lazy(place)
    peace = run(one, tmp_path / "peace", dataset=data)
    with pytest.raises(CrashError):
        run(one, tmp_path / "war", dataset=data, callback=At(40, crash), checkpoints=CheckpointPolicy(samples=13))
    again = run(one, tmp_path / "war", dataset=lazy(place))
    assert kept(again.folder) == kept(peace.folder)


@pytest.mark.slow
def test_a_killed_decoder_stops_the_run_and_it_goes_on(place: Path, tmp_path: Path) -> None:
    one, data = small(), lazy(place)
    peace = run(one, tmp_path / "peace", dataset=data)
    assert isinstance(data.train.images, PictureFiles)

    def kill() -> None:
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(StoppedError, match="IBLURRY_DECODERS"):
        run(one, tmp_path / "war", dataset=data, callback=At(40, kill), checkpoints=CheckpointPolicy(samples=10))
    again = run(one, tmp_path / "war", dataset=data)
    assert kept(again.folder) == kept(peace.folder)


@pytest.mark.quick("0-None", "0-2559", "2-0")
@pytest.mark.parametrize("budget", [None, 40 * 64, 40 * 64 - 1, 0])
@pytest.mark.parametrize("workers", [0, 2])
def test_answers_are_counted_the_same(budget: int | None, workers: int, place: Path, monkeypatch) -> None:
    monkeypatch.setattr("iblurry.experiment.evaluator.CHUNK", 7)
    one, data, there = small("clib"), whole(place), lazy(place)
    learner, reference = one.learner(data), Evaluator(data, torch.device("cpu"))
    decoders = decoders_for(there.test.images, workers=workers, ahead=3)
    evaluator = Evaluator(there, torch.device("cpu"), decoders=decoders, budget=budget)
    assert evaluator.is_kept == (budget is None or budget == 40 * 64)
    try:
        for at, index in enumerate(one.order(data).indices):
            learner.observe(data.train.images[index], data.classes[data.train.labels[index]])
            if at % 9 == 0:
                answer = evaluator.ask(learner).counts()
                assert answer == reference.ask(learner).counts()
        assert sum(answer[1]) == 40
        assert 0 < sum(answer[0]) < 40
    finally:
        if decoders is not None:
            decoders.close()


def test_a_damaged_file_stops_the_run_by_name(place: Path, tmp_path: Path) -> None:
    one, data = small(), lazy(place)
    assert isinstance(data.train.images, PictureFiles)
    file = Path(data.train.images.path(int(one.order(data).indices[50])))
    good, about = file.read_bytes(), file.stat()
    file.write_bytes(b"text")
    with pytest.raises(DataError, match=file.name):
        run(one, tmp_path, dataset=data, checkpoints=CheckpointPolicy(samples=10))
    with pytest.raises(DataError, match=file.name):
        run(one, tmp_path, dataset=data)
    file.write_bytes(good)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
