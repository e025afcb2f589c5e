"""`iblurry export`: a run's learner as a file."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from iblurry.data.load import load
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.saved_learner import saved_learner
from iblurry.export import load_exported
from iblurry.learner import Learner
from tests.cli.conftest import QUICK

DATA = QUICK[1]


@pytest.fixture
def run(call, here):
    assert call("run", "bic", "--seeds", "1", *QUICK).code == 0
    (folder,) = (here / "runs").glob("bic-*")
    return folder


def test_the_network_answers_as_the_run_would(call, here, run):
    said = call("export", run, "model.pt2", "--json")
    assert said.code == 0
    about = json.loads(said.out)
    model, data = load_exported(here / "model.pt2"), load(DATA)
    assert about["classes"] == model.labels
    assert set(model.labels) <= set(data.classes)
    assert model.about["mean"] == pytest.approx(data.mean)
    learner = saved_learner(RunFolder(run), data)
    assert about["samples"] == learner.context.seen == 40
    wanted = learner.logits(data.test.images)[:, : len(model.labels)]
    torch.testing.assert_close(model.logits(data.test.images), wanted, atol=1e-4, rtol=1e-4)
    said = np.array([data.classes.index(name) for name in model.predict(data.test.images)])
    met = np.isin(data.test.labels, [data.classes.index(name) for name in model.labels])
    summary = json.loads((run / "summary.json").read_text())
    assert np.mean((said == data.test.labels)[met]) == pytest.approx(summary["a_last"])


def test_the_learner_goes_on(call, here, run):
    assert "bic after 40 samples" in call("export", run, "learner.safetensors").out
    learner = Learner.load(here / "learner.safetensors")
    learner.observe(load(DATA).train.images[0], learner.labels[0])
    assert learner.context.seen == 41


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
