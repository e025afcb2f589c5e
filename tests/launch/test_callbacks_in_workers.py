"""Callbacks that take part in runs of worker processes: the same bytes as here, and refused if they cannot travel."""

from __future__ import annotations

import pytest

from iblurry import Callback, LaunchConfig, run, run_all
from iblurry.errors import FolderError, InputError
from iblurry.launch import ray as module
from tests.experiment.small import Recorder, kept, small
from tests.experiment.user_callbacks import Mine, ReadEverything, StopAt
from tests.launch.test_ray_copies import RayHere

TWO = [small("er"), small("clib", seed=2)]


@pytest.mark.slow
def test_two_workers_give_the_same_bytes(tmp_path):
    watching = [Recorder(), Recorder()]
    given = [[ReadEverything(), watching[0]], [ReadEverything(), StopAt(), watching[1]]]
    here = [run(one, tmp_path / "here", callback=some) for one, some in zip(TWO, given, strict=True)]
    config = LaunchConfig(out=tmp_path / "there", jobs=2)
    there = run_all(TWO, config, given)
    assert [kept(one.folder) for one in there] == [kept(one.folder) for one in here]
    assert there[1].stopped.at == 40
    assert any("stopped early" in text for text in watching[1].messages)
    assert [one.records for one in run_all(TWO, config, given)] == [one.records for one in there]
    with pytest.raises(FolderError, match="Mine"):
        run_all(TWO, config, Mine())


@pytest.mark.slow
def test_ray(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_import_ray", RayHere)
    results = run_all(TWO, LaunchConfig(out=tmp_path / "ray", on="ray", jobs=2), Mine())
    assert [one.logged for one in results] == [run(one, tmp_path, callback=Mine()).logged for one in TWO]


def test_a_callback_that_cannot_travel_is_refused_before_the_first_run(tmp_path):
    class Local(Callback):
        def on_sample(self, run, sample):
            run.log("local", 1)

    assert run(small(), tmp_path / "here", callback=Local()).logged
    with pytest.raises(InputError, match="Local"):
        run_all(TWO, LaunchConfig(out=tmp_path / "there", jobs=2), Local())
    assert not (tmp_path / "there").exists()
