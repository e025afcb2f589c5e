"""A service with a network, a method and a transform of the user's own: imported by its process, refused if edited."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest

from iblurry.components import objects
from iblurry.components.edit import component
from iblurry.errors import InputError
from iblurry.live.settings import Settings
from iblurry.methods import METHODS
from iblurry.network.registry import NETWORKS
from tests.live.lives import DIGITS, serving, taught

MODULE = """
from torch import nn
from iblurry import CrossEntropy, Reservoir, Transform, er, recipe, register_network

@register_network
def service_net(image, width: int = 8):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.LayerNorm(width), nn.ReLU())

class Patient(Reservoir):
    def choose_row(self, sample):
        return super().choose_row(sample)

@recipe(paper="none")
def patient(hyperparameters):
    "ER with a reservoir of one's own."
    return er(hyperparameters, name="patient", admission=Patient())

class Dark(Transform):
    share: float = 0.5
    def __call__(self, images, uniforms):
        return (images * self.share).to(images.dtype)
"""
PROGRAM = """
import json, sys
from pathlib import Path
import service_code
from iblurry.errors import InputError
from iblurry.live.settings import Settings
for given in ({}, {"network": "service_net:width=6", "method": "patient"}):
    try:
        Settings.of(Path(sys.argv[1]), **given).check()
    except InputError as error:
        print(type(error).__name__)
"""
GIVEN = {"network": "service_net:width=6", "method": "patient", "freeze": "1.bias", "image": (1, 8, 8), "memory": 20}


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "service_code.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import service_code

    return service_code


def settings(folder, module):
    dark = component(module.Transform, "Dark:share=0.25")
    return Settings.of(folder, **GIVEN, augment=[dark.to_json()], batch=4, max_classes=10)


def test_the_names_in_its_folder_have_hashes(module, tmp_path):
    chosen = settings(tmp_path / "live", module)
    assert chosen.network.startswith("service_net@")
    assert chosen.network.endswith(":width=6")
    assert chosen.method.startswith("patient@")
    assert next(iter(chosen.augment[0])).startswith("Dark@")
    modules, factories = chosen.user_code()
    assert (modules, [*factories]) == (["service_code"], [chosen.network.partition(":")[0]])
    (tmp_path / "live").mkdir()
    chosen.save(tmp_path / "live")
    assert Settings.of(tmp_path / "live", network="service_net:width=6", method="patient") == chosen
    learner = chosen.build_learner()
    assert (learner.context.network.features, learner.method.name) == (6, "patient")
    assert not learner.context.network.body[1].bias.requires_grad
    assert learner.config.augment == module.Dark(share=0.25)


@pytest.mark.slow
def test_it_learns_and_answers(module, tmp_path):

    async def life():
        async with serving(tmp_path / "live", settings(tmp_path / "live", module)) as service:
            await taught(service, 0, 30, seen="model")
            found = await service.model("safetensors")  # by another process
            found.file.close()
            assert found.samples == 30
            return (await service.predict(DIGITS.test.images[:4])).probabilities

    first = asyncio.run(life())
    assert first.shape[0] == 4
    assert np.isfinite(first).all()


@pytest.mark.slow
@pytest.mark.parametrize("old, new", [("LayerNorm", "BatchNorm1d"), ("return super()", "return  super()")])
def test_edited_code_is_refused(module, tmp_path, old, new):
    folder = tmp_path / "live"
    folder.mkdir()
    settings(folder, module).save(folder)
    (tmp_path / "service_code.py").write_text(MODULE.replace(old, new))
    words = [sys.executable, "-c", PROGRAM, folder]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert said.split() == ["InputError", "FolderError"]


def test_without_the_code_it_is_refused(module, tmp_path, monkeypatch):
    chosen = settings(tmp_path, module)
    monkeypatch.delitem(NETWORKS, "service_net")
    monkeypatch.setattr(objects, "_objects", {})  # as in another process
    with pytest.raises(InputError, match="service_net@"):
        chosen.check()
    monkeypatch.delitem(METHODS, "patient")
    with pytest.raises(InputError, match="patient"):
        chosen.check()
