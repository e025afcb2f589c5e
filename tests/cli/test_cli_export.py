"""`iblurry export`: a run's learner as a file."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from iblurry.data.load import load
from iblurry.learner.exported import load_exported
from iblurry.learner.learner import Learner
from iblurry.live.learning import LiveLearner
from iblurry.live.log import SampleLog
from iblurry.storage import checkpoint
from tests.cli.conftest import DATA, QUICK
from tests.laws.lawful import assert_same_state
from tests.live.lives import SMALL, entries, operations


@pytest.fixture
def run(call, here):
    assert call("run", "bic", "--seeds", "1", *QUICK).code == 0
    (folder,) = (here / "runs").glob("bic-*")
    return folder


def test_the_learner_of_a_run(call, here, run):
    """Its network answers as the run did; the learner has the run's state, and goes on without the data."""
    about = json.loads(call("export", run, "model.pt2", "--json").out)
    model, data, learner = load_exported(here / "model.pt2"), load(DATA), Learner.load(run)
    assert about["classes"] == model.labels
    assert about["samples"] == learner.context.seen == 40
    assert list(model.about["mean"]) == list(learner.config.mean) == pytest.approx(list(data.mean))
    assert learner.config.labels == list(data.classes)
    assert_same_state(learner.state_dict(), checkpoint.load_latest(run).state["learner"])
    wanted = learner.logits(data.test.images)[:, : len(model.labels)]
    torch.testing.assert_close(model.logits(data.test.images), wanted, atol=1e-4, rtol=1e-4)
    said = np.array([data.classes.index(name) for name in model.predict(data.test.images)])
    met = np.isin(data.test.labels, [data.classes.index(name) for name in model.labels])
    summary = json.loads((run / "summary.json").read_text())
    assert np.mean((said == data.test.labels)[met]) == pytest.approx(summary["a_last"])
    assert "bic after 40 samples" in call("export", run, "learner.safetensors").out
    learner = Learner.load(here / "learner.safetensors")
    learner.observe(data.train.images[0], learner.labels[0])
    assert learner.context.seen == 41


def test_a_service_folder_is_a_learner_too(call, here, tmp_path):
    """Its checkpoint, whatever it does meanwhile: ready to observe and predict, and to be exported."""
    data, folder = load("digits"), here / "live"
    folder.mkdir()
    live = LiveLearner(folder, SMALL)
    for entry in entries(0, 40):
        live.apply(entry)
    live.save()
    (folder / "checkpoint-000000000041.safetensors").write_bytes(b"damaged")
    learner = Learner.load(folder)
    assert_same_state(learner.state_dict(), live.learner.state_dict())
    for image, label in zip(data.train.images[40:50], data.train.labels[40:50], strict=True):
        for one in (learner, live.learner):
            one.observe(image, data.classes[label])
    assert_same_state(learner.state_dict(), live.learner.state_dict())
    assert call("export", folder, "model.pt2").out.endswith("clib after 40 samples, 10 classes\n")
    assert load_exported("model.pt2").predict(data.test.images) == Learner.load(folder).predict(data.test.images)
    log = SampleLog(folder, max_classes=12, max_bytes=10**8)
    with log.transaction():
        log.add(list(operations(0, 43)))
    about = json.loads(call("export", folder, "model.pt2", "--json").out)  # three are in no checkpoint yet
    assert (about["samples"], about["accepted"]) == (40, 43)
    assert "43" in call("export", folder, "model.pt2").out
    log.close()


@pytest.mark.slow
def test_what_cannot_be_exported(call, here, run):
    assert call("export", run, "model.pth").code == 2
    assert call("export", here, "model.pt2").code == 2
    for path in run.glob("checkpoint-*"):
        path.rename(here / path.name)
    said = call("export", run, "model.pt2")
    assert (said.code, "no checkpoint" in said.err) == (2, True)
    for path in here.glob("checkpoint-*"):
        (run / path.name).write_bytes(path.read_bytes()[:-1])
    said = call("export", run, "model.pt2")
    assert (said.code, "checkpoint" in said.err) == (2, True)
    shutil.rmtree(run)
    assert call("export", run, "model.pt2").code == 2
    assert not (here / "model.pt2").exists()
