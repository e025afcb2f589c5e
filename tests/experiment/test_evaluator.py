"""The evaluator against a plain loop over the test images, and training images on the device."""

from __future__ import annotations

import copy
import dataclasses
import gc
import weakref

import numpy as np
import pytest
import torch

from iblurry.data.dataset import LabelledImages
from iblurry.data.images import PictureFiles
from iblurry.data.load import load
from iblurry.errors import DivergedError
from iblurry.experiment import evaluator as evaluator_module, run_loop
from iblurry.experiment.evaluator import Evaluator, device_images
from iblurry.launch.launch import run
from tests.experiment.small import DATA, kept, small
from tests.laws.lawful import assert_same_state

CPU = torch.device("cpu")


def feed(learner, data, count, start=0):
    for index in small().order(data).indices[start : start + count]:
        learner.observe(data.train.images[index], data.classes[data.train.labels[index]])


def by_hand(learner, data):
    right, total = [], []
    for name in learner.labels:
        images = [i for i, c in zip(data.test.images, data.test.labels, strict=True) if data.classes[c] == name]
        right.append(sum(learner.predict(image[None]) == [name] for image in images))
        total.append(len(images))
    return tuple(right), tuple(total)


@pytest.mark.parametrize("name", ["er", "clib"])
def test_counts_are_those_of_a_plain_loop_while_classes_arrive(name, data):
    learner, evaluator = small(name).learner(data), Evaluator(data, CPU)
    for part in range(8):
        feed(learner, data, 10, start=10 * part)
        assert evaluator.ask(learner).counts() == by_hand(learner, data)
    assert len(learner.labels) == 4


def test_asking_uses_running_statistics_and_leaves_the_learner_bit_for_bit(data):
    learner = small("clib", network="convnet").learner(data)
    feed(learner, data, 30)
    network, evaluator, before = learner.context.network, Evaluator(data, CPU), copy.deepcopy(learner.state_dict())
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    moods = []
    handles = [m.register_forward_hook(lambda m, *_: moods.append(m.training)) for m in norms]
    network.train()
    right, total = evaluator.ask(learner).counts()
    for handle in handles:
        handle.remove()
    assert moods
    assert not any(moods)
    assert_same_state(learner.state_dict(), before)
    assert (right, total) == by_hand(learner, data)  # one image at a time: the others in a batch do not matter
    assert len(total) == len(learner.labels) < len(data.classes)  # only of classes met


def test_a_class_without_test_images_has_no_questions(data):
    learner = small().learner(data)
    feed(learner, data, 30)
    gone = data.classes.index(learner.labels[0])
    rest = np.flatnonzero(data.test.labels != gone)
    fewer = dataclasses.replace(data, test=LabelledImages(data.test.images[rest], data.test.labels[rest]))
    right, total = Evaluator(fewer, CPU).ask(learner).counts()
    assert (right[0], total[0]) == (0, 0)
    assert (right[1:], total[1:]) == tuple(each[1:] for each in by_hand(learner, data))
    learner = small().learner(data)
    feed(learner, data, 1)
    for budget in (None, 0):
        assert Evaluator(fewer, CPU, budget=budget).ask(learner).counts() == ((0,), (0,))


def test_answers_that_are_no_numbers_are_refused(data):
    learner = small().learner(data)
    feed(learner, data, 30)
    with torch.no_grad():
        learner.context.network.head.bias[0] = float("inf")
    answer = Evaluator(data, CPU).ask(learner)
    feed(learner, data, 5, start=30)  # the sample at which it was asked is what counts
    with pytest.raises(DivergedError, match="sample 30"):
        answer.counts()


@pytest.mark.parametrize("chunk", [7, 80, 4096])
@pytest.mark.parametrize("writeable", [True, False])
def test_training_images_on_the_device_are_a_copy_of_the_same_pixels(chunk, writeable, data, monkeypatch):
    monkeypatch.setattr(evaluator_module, "COPIED", chunk)
    pixels = data.train.images.copy()
    pixels.flags.writeable = writeable
    one = dataclasses.replace(data, train=dataclasses.replace(data.train, images=pixels))
    images = device_images(one, CPU)
    assert images.dtype == torch.uint8
    assert np.array_equal(images.numpy(), pixels)
    assert not np.shares_memory(images.numpy(), pixels)


def test_there_is_one_copy_for_a_data_set_while_there_is_one():
    data = load(DATA)
    images = device_images(data, CPU)
    assert device_images(data, torch.device("cpu")) is images
    assert device_images(load(DATA), CPU) is not images
    gone = weakref.ref(images)
    del images
    gc.collect()
    assert gone() is not None
    del data
    gc.collect()
    assert gone() is None


def test_only_what_fits_and_no_files_are_copied(data, tmp_path, monkeypatch):
    pictures = PictureFiles(tmp_path, [f"{n}.png" for n in range(len(data.train))], data.shape)
    assert device_images(dataclasses.replace(data, train=dataclasses.replace(data.train, images=pictures)), CPU) is None
    for room in (-1, 0):
        monkeypatch.setenv("IBLURRY_EAGER_BYTES", str(data.train.images.size + room))
        assert (device_images(data, CPU) is None) == (room < 0)


def test_a_run_that_takes_its_images_from_there(data, tmp_path, monkeypatch):
    plain = run(small("clib"), tmp_path / "plain", dataset=data)
    taken = []

    class Counting:
        def __getitem__(self, index):
            taken.append(index)
            return device_images(data, CPU)[index]

    monkeypatch.setattr(run_loop.RunLoop, "has_remote_tensors", True)
    monkeypatch.setattr(run_loop, "device_images", lambda dataset, device: Counting())
    there = run(small("clib"), tmp_path / "there", dataset=data)
    assert kept(there.folder) == kept(plain.folder)
    assert taken == small("clib").order(data).indices.tolist()
