"""The parts of docs/parts.md, each as a user's module: they run, obey the laws and do what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from iblurry.augment.pipeline import Augment
from iblurry.components.component import Component
from iblurry.learner.cost import bytes_held
from iblurry.methods import Hyperparameters, clib, er
from iblurry.parts import BiasCorrected, CrossEntropy, Distil
from iblurry.parts.context import Forward
from iblurry.storage import checkpoint
from tests.laws.lawful import assert_same_state, new_learner
from tests.printed import python

PAGE = Path(__file__).parent.parent / "docs" / "parts.md"
SMALL = Hyperparameters(batch=8)
SAMPLES = 40


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """Everything the page defines, from files of a user's own."""
    defined = {}
    for number, block in enumerate(python(PAGE)):
        path = tmp_path_factory.mktemp("user") / f"user_part_{number}.py"
        path.write_text(block)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        defined |= vars(module)
    yield defined
    for known in Component._known.values():
        for name in [name for name, part in known.items() if part.__module__.startswith("user_part_")]:
            del known[name]


@pytest.fixture(scope="module")
def methods(user):
    return {
        "oldest": clib(SMALL, admission=user["Oldest"]()),
        "ace": er(SMALL, terms=(user["OwnClassesOnly"](),)),
        "average": clib(SMALL, readout=user["MovingAverage"]()),
        "shared average": er(
            SMALL, terms=(CrossEntropy(), Distil()), readout=user["MovingAverage"](decay=0.9), name="distilled"
        ),
    }


@pytest.fixture(params=["oldest", "ace", "average", "shared average"])
def method(request, methods):
    return methods[request.param]


def learner_of(method):
    return new_learner(method, augment=Augment(pad=1, cutmix=0))


def feed(learner, samples, start=0, stop=SAMPLES):
    for at, (image, label) in enumerate(samples[start:stop], start=start + 1):
        learner.observe(image, label)
        if at == 20:
            learner.end_task()


def test_a_users_part_resumes_exactly_and_queries_change_nothing(method, samples, questions, tmp_path):
    whole, first, second = (learner_of(method) for _ in range(3))
    feed(whole, samples)
    feed(first, samples, stop=25)
    first.predict(questions)
    checkpoint.save(tmp_path, first.state_dict(), at=25)
    second.load_state_dict(checkpoint.load_latest(tmp_path).state)
    feed(second, samples, start=25)
    assert_same_state(second.state_dict(), whole.state_dict())
    assert torch.equal(second.logits(questions), whole.logits(questions))


def test_the_oldest_sample_leaves(methods, samples):
    learner = learner_of(methods["oldest"])
    memory = learner.context.memory
    for image, label in samples:
        before = memory.written_at[:-1].clone()
        was_full = memory.full
        learner.observe(image, label)
        if was_full:
            changed = (memory.written_at[:-1] != before).nonzero().flatten()
            assert changed.tolist() == [int(before.argmin())]


def test_streamed_samples_compete_among_their_own_classes(user):
    logits, labels = torch.randn(5, 4), torch.tensor([0, 2, 2, 1, 3])
    forward = Forward(None, logits, labels, None, torch.ones(1), 3, torch.zeros(2), logits)
    stream = F.cross_entropy(logits[:3][:, [0, 2]], torch.tensor([0, 1, 1]))
    expected = stream + F.cross_entropy(logits[3:], labels[3:])
    torch.testing.assert_close(user["OwnClassesOnly"]().loss(forward), expected)


def test_answers_come_from_the_average(methods, samples, questions):
    learner = learner_of(methods["average"])
    average = {}
    for image, label in samples[:SAMPLES]:
        known = learner.context.network.known
        learner.observe(image, label)
        state = learner.context.network.state_dict()
        if not average:
            average = {name: value.clone() for name, value in learner.context.shadow("average").state_dict().items()}
            continue
        if learner.context.network.known == known:
            for name, value in average.items():
                if value.is_floating_point():
                    value.lerp_(state[name], 0.01)
        else:
            average = {name: value.clone() for name, value in learner.context.shadow("average").state_dict().items()}
    for name, value in learner.context.shadow("average").state_dict().items():
        torch.testing.assert_close(value, average[name], msg=name)
    asked = torch.from_numpy(questions)
    assert torch.equal(
        learner.logits(questions), learner.context.logits(asked, learner.context.shadow("average").network)
    )
    assert not torch.equal(learner.logits(questions), learner.context.logits(asked))
    assert learner.logits(questions)[:, : learner.context.network.known].min() > -1e3  # no row of a class is closed
    network = bytes_held(new_learner(clib(SMALL)))["network"]
    assert bytes_held(learner)["parts"] - bytes_held(new_learner(clib(SMALL)))["parts"] == network


def test_parts_that_name_one_shadow_share_it(user):
    method = er(SMALL, terms=(CrossEntropy(), Distil()), readout=BiasCorrected())
    learner = new_learner(method, memory=60)
    assert learner.method.terms[1].correction is learner.method.readout.at_last_boundary
    assert list(learner.context.shared) == ["shadow teacher", "logit correction"]
