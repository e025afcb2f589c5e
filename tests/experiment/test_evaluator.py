"""The examiner against a plain loop over the test images."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch

from iblurry.data.dataset import LabelledImages
from iblurry.data.load import load
from iblurry.errors import DivergedError
from iblurry.experiment.evaluator import Evaluator
from tests.experiment.small import DATA, small
from tests.laws.lawful import assert_same_state


@pytest.fixture(scope="module")
def data():
    return load(DATA)


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
    learner, evaluator = small(name).learner(data), Evaluator(data, torch.device("cpu"))
    for part in range(8):
        feed(learner, data, 10, start=10 * part)
        assert evaluator.ask(learner).counts() == by_hand(learner, data)
    assert len(learner.labels) == 4


def test_an_examiner_that_comes_late_gives_the_same_counts(data):
    learner, early = small().learner(data), Evaluator(data, torch.device("cpu"))
    feed(learner, data, 20)
    early.ask(learner)
    feed(learner, data, 40, start=20)
    assert early.ask(learner).counts() == Evaluator(data, torch.device("cpu")).ask(learner).counts()


def test_asking_changes_nothing(data):
    learner = small("clib").learner(data)
    feed(learner, data, 30)
    before = copy.deepcopy(learner.state_dict())
    Evaluator(data, torch.device("cpu")).ask(learner)
    assert_same_state(learner.state_dict(), before)


def test_asking_uses_running_statistics_and_leaves_the_network_bit_for_bit(data):
    learner = small("clib", network="convnet").learner(data)
    feed(learner, data, 30)
    network, evaluator = learner.context.network, Evaluator(data, torch.device("cpu"))
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    moods = []
    handles = [m.register_forward_hook(lambda m, *_: moods.append(m.training)) for m in norms]
    network.train()
    right, total = evaluator.ask(learner).counts()
    for handle in handles:
        handle.remove()
    assert moods
    assert not any(moods)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert any("running_mean" in name for name in before)
    assert (right, total) == by_hand(learner, data)  # one image at a time: the others in a batch do not matter
    assert len(total) == len(learner.labels) < len(data.classes)  # only of classes met


def test_a_class_without_test_images_has_no_questions(data):
    learner = small().learner(data)
    feed(learner, data, 30)
    gone = data.classes.index(learner.labels[0])
    rest = np.flatnonzero(data.test.labels != gone)
    fewer = dataclasses.replace(data, test=LabelledImages(data.test.images[rest], data.test.labels[rest]))
    right, total = Evaluator(fewer, torch.device("cpu")).ask(learner).counts()
    assert (right[0], total[0]) == (0, 0)
    assert (right[1:], total[1:]) == tuple(each[1:] for each in by_hand(learner, data))


def test_answers_that_are_no_numbers_are_refused(data):
    learner = small().learner(data)
    feed(learner, data, 30)
    with torch.no_grad():
        learner.context.network.head.bias[0] = float("inf")
    answer = Evaluator(data, torch.device("cpu")).ask(learner)
    feed(learner, data, 5, start=30)  # the sample at which it was asked is what counts
    with pytest.raises(DivergedError, match="sample 30"):
        answer.counts()
