"""The pages on networks and optimizers: their code runs as printed, from files of a user's own where it is imported."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from iblurry.cli.main import main
from iblurry.engine.optimizer import Optimizer
from iblurry.methods import er
from iblurry.network.build import build
from iblurry.network.registry import NETWORKS
from iblurry.rng import Rng
from tests.laws.lawful import HYPERPARAMETERS, new_learner
from tests.printed import python

DOCS = Path(__file__).parent.parent / "docs"
LONGEST = 15  # lines of a block


def blocks(page, word):
    return [block for block in python(DOCS / page) if word in block]


def saved(block, tmp_path, name):
    """The block as a user's module."""
    path = tmp_path / name
    path.write_text(block)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["networks.md", "optimizers.md", "frozen.md"])
def test_no_block_is_long(page):
    assert all(len(block.strip().splitlines()) <= LONGEST for block in python(DOCS / page))


def test_a_function_that_makes_a_body(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("networks.md", "def my_net")
    exec(compile(block, "mine.py", "exec"), {"__name__": "__main__"})
    assert re.search(r"a_auc=0\.\d", capsys.readouterr().out)


@pytest.mark.quick("1")
@pytest.mark.parametrize("seeds", ["1", "1,2"])  # worker processes find it, too
def test_on_the_command_line(seeds, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("networks.md", "def my_net")
    (tmp_path / "mine.py").write_text(block)
    words = "run er --import mine.py --network my_net:width=16 --samples 30 --json --set optimizer=NAdam --seeds"
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), seeds])
    assert not ended.value.code
    assert "a_auc" in capsys.readouterr().out


@pytest.mark.slow
def test_a_module_with_weights(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("networks.md", "body.pt")
    exec(compile(block, "networks.md", "exec"), {"__name__": "__main__"})
    assert re.search(r"a_auc=0\.\d", capsys.readouterr().out)


@pytest.mark.parametrize("library, image", [("timm", (3, 32, 32)), ("torchvision", (3, 32, 32))])
def test_bodies_of_libraries(library, image, tmp_path):
    pytest.importorskip(library, reason=f"needs {library}: pip install {library}", exc_type=Exception)
    (block,) = blocks("networks.md", f"import {library}")
    block = block.replace("pretrained=True", "pretrained=False").replace('weights="DEFAULT"', "weights=None")
    saved(block, tmp_path, f"user_{library}.py")
    name = {"timm": "vit", "torchvision": "efficientnet"}[library]
    assert name in NETWORKS
    assert build(name, image, 3, rng=Rng(1)).features > 100


def test_bodies_of_hugging_face(tmp_path):
    pytest.importorskip("transformers", reason="needs transformers: pip install transformers")
    (block,) = blocks("networks.md", "import transformers")
    tiny = "Pooled(transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=32))"
    module = saved(re.sub(r"Pooled\.from_pretrained\(.*\)", tiny, block), tmp_path, "user_transformers.py")
    assert build(module.body, (3, 64, 64), 3, rng=Rng(1)).features == 8


@pytest.mark.slow
def test_optimizers_of_torch(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("optimizers.md", "RMSprop")
    exec(compile(block, "optimizers.md", "exec"), {"__name__": "__main__"})
    names = re.findall(r"^(\w+)\(", capsys.readouterr().out, flags=re.MULTILINE)
    assert names == ["AdamW", "NAdam", "RMSprop"]


@pytest.mark.parametrize("name", ["Lion", "CautiousAdam"])
def test_optimizers_of_ones_own(name, tmp_path, samples):
    (block,) = blocks("optimizers.md", f"class {name}")
    module = saved(block.replace("Lion", "PrintedLion"), tmp_path, f"user_{name}.py")
    given = getattr(module, name.replace("Lion", "PrintedLion"))
    learner = new_learner(er(HYPERPARAMETERS, optimizer=given), network="mlp:width=8")
    before = learner.context.network.body.layers[1].weight.clone()
    for image, label in samples[:16]:
        learner.observe(image, label)
    assert not torch.equal(learner.context.network.body.layers[1].weight, before)
    assert Optimizer.from_json(learner.method.optimizer.to_json()) == learner.method.optimizer


def test_frozen_features(capsys, monkeypatch):
    """Every block of the page runs, and heads on filters drawn at random are far from guessing."""
    found = python(DOCS / "frozen.md")
    monkeypatch.setattr("iblurry.network.registry.NETWORKS", dict(NETWORKS))
    for block in found:
        exec(compile(block, "frozen.py", "exec"), {"__name__": "frozen_page"})
    accuracies = [float(word) for word in re.findall(r"0\.\d+", capsys.readouterr().out)]
    assert len(found) == 3
    assert len(accuracies) == 2
    assert min(accuracies) > 0.6
