"""Features of a body that is not trained: computed once, stored in place of pixels, and worth the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from iblurry.augment import Augment
from iblurry.data.load import load
from iblurry.errors import InputError
from iblurry.experiment.checkpointer import CheckpointPolicy
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.journal import Spent, read
from iblurry.launch.launch import run
from iblurry.learner.cost import bytes_held
from iblurry.learner.exported import load_exported
from iblurry.learner.learner import Learner
from iblurry.methods import balm, clib, er, slda
from iblurry.network.build import build
from iblurry.network.flops import feature_flops, flops
from iblurry.parts import Averaged, Discriminant
from iblurry.rng import Rng
from tests.experiment.small import DATA, At, CrashError, crash, kept, small

RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 4, 80)
IMAGES = RNG.integers(0, 160, (80, 1, 8, 8), dtype=np.uint8)
IMAGES[np.arange(80), 0, LABELS] += 90  # a bright line tells the class
WIDTH = 20


def taught(method, count=60, **changes):
    options = {"memory": 24, "network": f"frozen:mlp:width={WIDTH}", "classes": 5} | changes
    learner = Learner(method, image=(1, 8, 8), **options)
    for image, label in zip(IMAGES[:count], LABELS[:count], strict=True):
        learner.observe(image, int(label))
    return learner


class Counting(nn.Module):
    """A body that counts the images it sees."""

    seen = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 6)

    def forward(self, images):
        Counting.seen += len(images)
        return self.layer(images.flatten(1))


def test_the_name_is_a_shorthand():
    by_name, by_freeze = taught("er"), taught("er", network=f"mlp:width={WIDTH}", freeze="body")
    assert torch.equal(by_name.logits(IMAGES), by_freeze.logits(IMAGES))
    assert by_name.config == by_freeze.config
    one = Experiment.of("er", network="frozen:mlp")
    assert one == Experiment.of("er", network="mlp", freeze="body", augment=())
    assert (one.network, one.freeze, one.augment) == ("mlp", "body", ())
    assert Experiment.from_json(one.to_json()) == dataclasses.replace(Experiment.of("er"), network="frozen:mlp")
    with pytest.raises(InputError, match="freezes the whole body"):
        taught("er", freeze="layers.0")


def test_the_memory_holds_the_features():
    learner = taught("er")
    memory, frozen = learner.context.memory, learner.context.frozen
    assert memory.images.shape[1:] == (1, WIDTH, 4)
    stored = memory.images[:-1].view(torch.float32).view(-1, WIDTH)
    all_features = torch.cat([frozen.features(torch.tensor(image[None])) for image in IMAGES[:60]])
    assert {tuple(row) for row in stored.tolist()} <= {tuple(row) for row in all_features.tolist()}
    body = build(f"mlp:width={WIDTH}", (1, 8, 8), 5, rng=Rng(1)).body  # as it was made
    assert all(torch.equal(a, b) for a, b in zip(frozen.network.body.parameters(), body.parameters(), strict=True))


@pytest.mark.quick("er", "clib")
@pytest.mark.parametrize("method", [er(), clib(), balm(readout=Averaged(mirror=False))], ids=lambda m: m.name)
def test_stored_features_are_worth_as_much_as_the_pixels(method):
    """Without augmentation, the head learns what it would through the frozen layers at every update."""
    through = taught(method, network=f"mlp:width={WIDTH}", freeze="layers", augment=())
    stored = taught(method)
    assert through.context.memory.images.shape[1:] == (1, 8, 8)
    torch.testing.assert_close(stored.logits(IMAGES), through.logits(IMAGES), rtol=1e-3, atol=1e-4)


def test_bytes_are_those_of_features():
    held = {
        name: bytes_held(taught(er(), network=network))
        for name, network in (("stored", "frozen:mlp:width=5"), ("pixels", "mlp:width=5"))
    }
    rows = taught(er()).context.memory.capacity
    assert held["pixels"]["memory"] - held["stored"]["memory"] == rows * (64 - 4 * 5)
    assert held["stored"]["network"] == held["pixels"]["network"]  # the frozen body is held as well
    assert held["stored"]["optimizer"] < held["pixels"]["optimizer"]


def test_a_frozen_body_sees_each_sample_once():
    learner = taught("clib", count=0, network=Counting(), freeze="body")
    Counting.seen = 0
    for image, label in zip(IMAGES, LABELS, strict=True):
        learner.observe(image, int(label))
    assert Counting.seen == learner.context.spent.forward["features"] == 80
    encoded = learner.encode(IMAGES[:7])
    before = learner.logits(encoded)
    assert Counting.seen == 87
    assert torch.equal(before, learner.logits(IMAGES[:7]))
    again = learner.encode(IMAGES[:1])
    learner.observe(again, int(LABELS[0]))
    assert Counting.seen == 95


def test_augmentation_of_what_is_stored_is_refused():
    with pytest.raises(InputError, match=r"augment=.* freeze='body'"):
        taught("er", augment=Augment(pad=1))
    mirrored, upright = (taught(slda(readout=Discriminant(mirror=mirror))) for mirror in (True, False))
    assert torch.equal(mirrored.logits(IMAGES), upright.logits(IMAGES))  # features have no left and right


def test_a_saved_learner_has_its_frozen_body(tmp_path):
    """Also where another object of the same form is given again: the weights are the file's."""
    torch.manual_seed(1)
    learner = taught("er", count=30, network=Counting(), freeze="body")
    learner.save(tmp_path / "learner.safetensors")
    torch.manual_seed(2)
    loaded = Learner.load(tmp_path / "learner.safetensors", network=Counting())
    assert torch.equal(loaded.logits(IMAGES), learner.logits(IMAGES))
    with pytest.raises(InputError, match="does not fit this network"):
        Learner.load(tmp_path / "learner.safetensors", network=nn.Sequential(nn.Flatten(), nn.Linear(64, 6)))


@pytest.mark.parametrize("method", ["er", "slda"])
def test_export_answers_alike(method, tmp_path):
    learner = taught(method)
    learner.export(tmp_path / "model.pt2")
    exported = load_exported(tmp_path / "model.pt2")
    known = len(learner.labels)
    torch.testing.assert_close(exported.logits(IMAGES[:9]), learner.logits(IMAGES[:9])[:, :known], rtol=1e-3, atol=1e-3)


def test_operations_are_those_of_the_head_and_of_each_body_pass(tmp_path):
    experiment = small("er", network="frozen:mlp", samples=60)
    folder = run(experiment, tmp_path).folder
    spent = [record for record in read(folder / "journal.jsonl") if isinstance(record, Spent)][-1]
    data = load(DATA)
    head, body = flops("mlp", data.shape, len(data.classes), freeze="body"), feature_flops("mlp", data.shape)
    assert head + body == flops("mlp", data.shape, len(data.classes))
    assert spent.flops["features"] == 60 * body
    assert spent.flops["training"] == 3 * head * spent.forward["training"]
    asked = spent.forward["features"] - 60
    assert 0 < asked <= len(data.test)
    assert spent.flops["queries"] == head * spent.forward["queries"] + body * asked


@pytest.mark.quick("slda")
@pytest.mark.parametrize("method", ["clib", "slda"])
@pytest.mark.usefixtures("every_sample")
def test_an_interrupted_run_writes_the_same_journal(method, tmp_path):
    experiment = small(method, network="frozen:mlp", samples=60)
    whole = kept(run(experiment, tmp_path / "whole").folder)
    for sample in (13, 29, 41):
        with pytest.raises(CrashError):
            run(experiment, tmp_path / "cut", callback=At(sample, crash), checkpoints=CheckpointPolicy(samples=5))
    assert kept(run(experiment, tmp_path / "cut").folder) == whole
