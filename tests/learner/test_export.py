"""The answering network as a file: it answers as the learner does, knows its classes, and needs no iblurry."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from iblurry.engine.convolutions import OwnConvolutions
from iblurry.errors import DataError, InputError
from iblurry.learner import export
from iblurry.learner.exported import KEY, load_exported
from iblurry.learner.learner import Learner
from iblurry.methods import METHODS, Hyperparameters, er
from iblurry.network import EXPORTING
from iblurry.network.bodies import ConvUnit
from iblurry.parts import Averaged

RNG = np.random.default_rng(1)
IMAGES = RNG.integers(0, 256, (60, 1, 8, 8), dtype=np.uint8)


def taught(method, images=IMAGES, **options):
    options = {"memory": 80, "network": "convnet:width=4", "classes": 5, "std": [0.3]} | options
    learner = Learner(method, image=images.shape[1:], **options)
    for at, image in enumerate(images):
        learner.observe(image, ("ant", "bee", 7, "dog")[at % (2 if at < 30 else 4)])
        if at == 30:
            learner.end_task()
    return learner


def assert_answers(learner, path, images=IMAGES):
    learner.export(path)
    model = load_exported(path)
    for count in (1, 7):
        wanted = learner.logits(images[:count])[:, : len(learner.labels)]
        torch.testing.assert_close(model.logits(images[:count]), wanted, atol=1e-4, rtol=1e-4)
    assert model.labels == learner.labels
    assert model.predict(images) == learner.predict(images)
    return model


@pytest.mark.quick("er", "gdumb")
@pytest.mark.parametrize("name", ["er", "bic", "gdumb", "rm", "er mlp", "er resnet18"])
def test_it_answers_as_the_learner(name, tmp_path):
    name, _, network = name.partition(" ")
    images = np.kron(IMAGES[:16], np.ones((1, 1, 2, 2), np.uint8)) if network == "resnet18" else IMAGES
    learner = taught(METHODS[name](Hyperparameters(epochs=2)), images, network=network or "convnet:width=4")
    before = learner.context.spent.state_dict()
    model = assert_answers(learner, tmp_path / "model.pt2", images)
    assert model.about["image"] == [*images.shape[1:]]
    assert model.about["method"] == name
    assert learner.context.spent.state_dict() == before
    if name == "bic":
        assert not torch.equal(learner.method.readout.pairs, learner.context.no_correction())


def test_a_readout_of_ones_own(tmp_path):
    learner = taught(er(readout=Averaged(decay=0.9)))
    assert_answers(learner, tmp_path / "model.pt2")
    plain = learner.context.logits(torch.from_numpy(IMAGES))[:, :4]
    assert not torch.allclose(load_exported(tmp_path / "model.pt2").logits(IMAGES), plain)


def test_learning_goes_on_as_if_nothing_had_been_exported(tmp_path):
    one, other = taught("er"), taught("er")
    one.export(tmp_path / "model.pt2")
    for learner in (one, other):
        for image in IMAGES[:16]:
            learner.observe(image, "ant")
    assert torch.equal(one.logits(IMAGES), other.logits(IMAGES))


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_a_file_that_answers_otherwise_is_not_kept(ending, tmp_path, monkeypatch):
    learner = taught("er", network="mlp:width=8")
    monkeypatch.setattr(export, "check_ending", lambda path: None)
    monkeypatch.setattr(export, "_write_onnx", lambda program, path, text: path.write_bytes(b"model"))
    for run in ("_run_program", "_run_onnx"):
        monkeypatch.setattr(export, run, lambda path, images: learner.logits(images)[:, :4] + 0.5)
    with pytest.raises(InputError, match=r"up to 0\.5"):
        learner.export(tmp_path / f"model.{ending}")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_it_is_read_without_iblurry(tmp_path):
    learner = taught("er", network="mlp:width=8")
    learner.export(tmp_path / "model.pt2")
    np.save(tmp_path / "images.npy", IMAGES[:3])
    code = f"""
import json, sys, numpy, torch
about = {{"{KEY}": ""}}
model = torch.export.load(sys.argv[1] + "/model.pt2", extra_files=about).module()
labels = json.loads(about["{KEY}"])["labels"]
images = torch.from_numpy(numpy.load(sys.argv[1] + "/images.npy"))
print(json.dumps([labels[row] for row in model(images).argmax(1).tolist()]))
assert "iblurry" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == learner.predict(IMAGES[:3])


def test_kernels_of_a_gpu_are_left_out(tmp_path):
    """Own kernels exist on one kind of GPU only; whatever they are, torch's convolutions take their place."""

    def convolve(maps, unit):
        assert not EXPORTING.get(), "a kernel was traced"
        return unit.convolution(maps)

    learner = taught("er")
    wanted = learner.logits(IMAGES)[:, :4]
    network = learner.context.network
    network.convolutions = OwnConvolutions([m for m in network.modules() if isinstance(m, ConvUnit)], convolve)
    learner.export(tmp_path / "model.pt2")
    torch.testing.assert_close(load_exported(tmp_path / "model.pt2").logits(IMAGES), wanted, atol=1e-4, rtol=1e-4)
    assert len(network.convolutions.units) > 1
    assert all(unit.convolve is convolve for unit in network.convolutions.units)


class OneByOne(nn.Module):
    """A body that no graph can describe: it reads values."""

    def forward(self, images):
        flat = images.flatten(1)
        return flat if float(flat.sum()) > 0 else flat * 2


def test_what_cannot_be_exported_says_so(tmp_path):
    with pytest.raises(InputError, match="OneByOne"):
        taught("er", network=OneByOne()).export(tmp_path / "model.pt2")
    with pytest.raises(InputError, match=r"model\.pth"):
        taught("er").export(tmp_path / "model.pth")
    with pytest.raises(InputError, match="observe"):
        Learner("er", image=(1, 8, 8), network="mlp").export(tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="nothing"):
        load_exported(tmp_path / "nothing.pt2")
    (tmp_path / "text.pt2").write_text("a text")
    with pytest.raises(DataError, match="text"):
        load_exported(tmp_path / "text.pt2")


def test_onnx_needs_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("iblurry.learner.export.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"onnx and onnxscript.*iblurry\[onnx\]"):
        taught("er").export(tmp_path / "model.onnx")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_onnx(tmp_path):
    onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'iblurry[onnx]'")
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'iblurry[onnx]'")
    learner = taught("bic")
    learner.export(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    about = json.loads({entry.key: entry.value for entry in model.metadata_props}[KEY])
    assert about["labels"] == learner.labels
    session = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install onnxruntime").InferenceSession(
        tmp_path / "model.onnx"
    )
    for count in (1, 7):
        (answers,) = session.run(None, {"images": IMAGES[:count]})
        wanted = learner.logits(IMAGES[:count])[:, : len(learner.labels)].numpy()
        np.testing.assert_allclose(answers, wanted, atol=1e-4, rtol=1e-4)
