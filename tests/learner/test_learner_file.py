"""A learner in a file: what it holds, what is refused, and networks that were objects."""

from __future__ import annotations

import copy
import dataclasses
import json

import numpy as np
import pytest
import safetensors
import torch
from torch import nn

from iblurry.components import objects
from iblurry.errors import CheckpointError, DataError, InputError
from iblurry.learner.learner import Learner
from iblurry.methods import METHODS, Hyperparameters
from iblurry.network.registry import NETWORKS, register_network
from iblurry.parts import Readout
from iblurry.storage import checkpoint
from iblurry.version import __version__
from tests.laws.lawful import assert_same_state
from tests.laws.user_transforms import Brightness

IMAGES = np.random.default_rng(1).integers(0, 256, (30, 1, 8, 8), dtype=np.uint8)


def taught(method="er", start=0, stop=20, learner=None, **options):
    options = {"image": (1, 8, 8), "memory": 20, "network": "mlp:width=8", "classes": 4} | options
    learner = learner or Learner(method, **options)
    for at in range(start, stop):
        learner.observe(IMAGES[at], "abc"[at % 3])
    return learner


@pytest.fixture
def path(tmp_path):
    return tmp_path / "models" / "learner.safetensors"


def test_the_arguments_come_back(path):
    options = {"classes": ["a", "b", 7, "c"], "mean": [0.1], "std": [0.5], "seed": 3, "boundaries": False}
    made = taught("clib", augment=Brightness(), freeze="layers.1", precision="bfloat16", **options)
    made.save(path)
    again = Learner.load(str(path))
    assert again.config == dataclasses.replace(made.config, augment=(Brightness(),))


def test_the_file_is_safetensors_with_names_of_code_inside(path):
    taught(augment=Brightness()).save(path)
    with safetensors.safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["iblurry"])
        assert "state/network/head.weight" in set(file.keys())
    assert about["version"] == __version__
    assert about["arguments"]["method"]["name"] == "er"
    (written,) = about["arguments"]["augment"][0]
    assert written.startswith("Brightness@")


def test_a_save_replaces_the_last_one_and_leaves_nothing_else(path):
    learner = taught()
    learner.save(path)
    taught(start=20, stop=30, learner=learner).save(path)
    assert Learner.load(path).context.seen == 30
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("at", [5, 200, -1])
def test_a_changed_byte_is_refused(path, at):
    taught().save(path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=path.name):
        Learner.load(path)


def test_other_files_are_refused(path, tmp_path):
    with pytest.raises(DataError, match="nothing"):
        Learner.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("a text")
    with pytest.raises(CheckpointError, match="text"):
        Learner.load(tmp_path / "text")
    saved = checkpoint.save(tmp_path, taught().state_dict(), at=20)
    with pytest.raises(CheckpointError, match=saved.name):
        Learner.load(saved)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        taught().save(tmp_path / "file" / "learner.safetensors")


def test_a_module_is_given_again_in_another_process(path, monkeypatch):
    """Its weights come from the file, those a refit starts from too."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5))
    method = METHODS["gdumb"](Hyperparameters(epochs=2))
    whole = taught(method, network=body)
    whole.save(path)
    taught(start=20, stop=30, learner=whole)
    monkeypatch.setattr(objects, "_objects", {})  # as in another process
    with pytest.raises(InputError, match="Sequential@"):
        Learner.load(path)
    other = copy.deepcopy(body)
    nn.init.ones_(other[1].weight)
    again = taught(start=20, stop=30, learner=Learner.load(path, network=other))
    assert_same_state(again.state_dict(), whole.state_dict())
    assert torch.equal(again.logits(IMAGES), whole.logits(IMAGES))
    with pytest.raises(InputError, match=path.name):
        Learner.load(path, network="mlp:width=7")


def test_code_that_is_not_here_is_refused(path, monkeypatch):
    def tiny(image, width=4):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, width))

    def halved(factor):
        class Halved(Readout):
            def logits(self, images):
                return self.context.logits(images) * factor

        return Halved()

    register_network(tiny)
    made = taught(METHODS["er"](readout=halved(0.5)), network="tiny:width=6")
    made.save(path)
    assert torch.equal(Learner.load(path).logits(IMAGES), made.logits(IMAGES))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(objects, "_objects", {})  # as in another process
        elsewhere.delitem(NETWORKS, "tiny")
        with pytest.raises(InputError, match="tiny@"):
            Learner.load(path)
    halved(0.25)  # edited
    with pytest.raises(InputError, match="'Halved'"):
        Learner.load(path)


@pytest.mark.quick("clib", "derpp", "slda")
@pytest.mark.parametrize("name", ["clib", "balm", "derpp", "mkd", "slda"])
def test_a_head_with_more_rows(path, name):
    """It answers and learns as a learner that had them from the beginning, and takes labels never announced."""
    method = METHODS[name](Hyperparameters(batch=4))
    few, many = taught(method, classes=["a", "b", "c"]), taught(method, classes=9)
    few.save(path)
    wide = Learner.load(path, classes=9)
    torch.testing.assert_close(wide.logits(IMAGES), many.logits(IMAGES), atol=1e-3, rtol=1e-3)
    for learner in (wide, many):
        taught(learner=learner, start=20, stop=24)
        learner.observe(IMAGES[25], "new")
        taught(learner=learner, start=26, stop=30)
    assert wide.labels == many.labels == ["a", "b", "c", "new"]
    torch.testing.assert_close(wide.logits(IMAGES), many.logits(IMAGES), atol=1e-3, rtol=1e-3)
    with pytest.raises(InputError, match="classes=2 is less than the 3 rows"):
        Learner.load(path, classes=2)
