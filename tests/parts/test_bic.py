"""BiC's two parts: distillation and the corrected readout."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from iblurry.errors import InputError
from iblurry.experiment.settings import setting
from iblurry.methods import Hyperparameters, bic, method
from iblurry.network import FLOOR
from iblurry.parts import BiasCorrected, Distil
from iblurry.parts.context import Forward
from iblurry.parts.terms.distil import distillation
from tests.laws.lawful import new_learner


def test_distillation_golden(golden):
    case = golden["bic"]
    old, new = (torch.tensor(case[key], dtype=torch.float64) for key in ("old_logits", "new_logits"))
    assert float(distillation(old, new, case["T"])) == pytest.approx(case["distill_loss"], abs=1e-9)
    closed = torch.full((2, 2), FLOOR, dtype=torch.float64)  # classes the teacher did not know add nothing
    wide = distillation(torch.cat([old, closed], 1), torch.cat([new, closed], 1), case["T"])
    assert float(wide) == pytest.approx(case["distill_loss"], abs=1e-9)
    assert Distil().temperature == case["T"]


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "tinyimagenet", "imagenet"])
def test_sizes_golden(golden, dataset):
    usual, sizes = setting(dataset), golden["bic"]["sizes"][dataset]
    made = method("bic", usual.hyperparameters)
    assert made.readout.samples_outside_memory(sizes["effective"]) == sizes["valid"]
    assert made.capacity(usual.memory) == sizes["memory"]
    assert usual.memory - made.pace.samples_outside_memory == sizes["effective"]


def test_quotas_golden(golden, make_context):
    context = make_context(2, rows=10)
    context = dataclasses.replace(context, budget=golden["bic"]["sizes"]["cifar10"]["effective"])
    part = BiasCorrected().attach(context)
    assert [[c, part.quota(c)] for c in range(1, 11)] == golden["bic"]["valid_per_class_cifar10"]


def walk(learner, samples, ends=(30,)):
    for at, (image, label) in enumerate(samples, start=1):
        learner.observe(image, label)
        if at in ends:
            learner.end_task()


def test_the_validation_set_is_balanced_never_trained_on_and_cut_when_a_class_comes(samples):
    learner = new_learner(bic(Hyperparameters(batch=8), readout=BiasCorrected(share=0.4)), memory=30)
    part = learner.method.readout
    for image, label in samples:
        offered, claimed = learner.context.memory.offered + len(learner.stream_batch), part.owners.count(-1)
        learner.observe(image, label)
        known = learner.context.network.known
        counts = np.bincount([o for o in part.owners if o >= 0], minlength=known)
        assert counts.max() <= part.quota(known) == part.size // known
        kept = learner.context.memory.offered + len(learner.stream_batch) == offered
        assert kept == (part.owners.count(-1) < claimed) or label == learner.labels[-1]  # claimed, so not offered
    assert part.size == round(0.4 * 26) == 10
    assert part.is_full()
    for place, owner in enumerate(part.owners):
        assert int(part.labels[place]) == owner


def test_without_new_classes_after_the_first_task_nothing_is_ever_fitted(samples, questions, golden, monkeypatch):
    """i-Blurry with N = 0: every class is met in task 0."""
    learner = new_learner(bic(Hyperparameters(batch=8), readout=BiasCorrected(share=0.4)), memory=40, network="mlp")
    monkeypatch.setattr("iblurry.parts.readout.bias_corrected.fit", lambda *_: pytest.fail("fitted"))
    teaches = []
    for task in range(3):
        for image, label in samples:
            learner.observe(image, label)
        teaches.append(learner.method.terms[1].teaches)
        assert learner.method.readout.is_full()
        assert torch.equal(learner.logits(questions), learner.context.logits(torch.from_numpy(questions)))
        assert learner.method.readout.task == task
        learner.end_task()
    assert teaches == [task != golden["bic"]["distillation_excluded_in_task"] for task in range(3)]


def test_the_teacher_is_the_network_of_the_last_new_class_or_task_end(samples):
    learner = new_learner(bic(Hyperparameters(batch=8)), network="mlp")
    term = learner.method.terms[1]
    walk(learner, samples[:29])
    assert not term.teaches
    images = torch.rand(3, 1, 8, 8)
    forward = Forward(images, torch.zeros(3, 6), torch.zeros(3), None, torch.ones(1), 3, torch.zeros(0), None)
    assert float(term.loss(forward._replace(ahead=term.ahead(images, None)))) == 0
    before = {name: value.clone() for name, value in learner.context.network.state_dict().items()}
    learner.end_task()
    assert term.teaches
    walk(learner, samples[29:31])
    teacher = term.teacher.state_dict()
    assert all(torch.equal(teacher[name], value) for name, value in before.items() if name != "open")
    assert int(teacher["open"].sum()) == 3
    learner.context.network.train()
    with torch.no_grad():
        logits = learner.context.network(images)
    assert float(term.loss(forward._replace(logits=logits, ahead=term.ahead(images, None)))) > 0
    assert learner.context.network.training


def test_bad_fields():
    with pytest.raises(InputError, match="temperature"):
        Distil(temperature=0)
    with pytest.raises(InputError, match="share"):
        BiasCorrected(share=1.0)
    assert Distil().released() == Distil(correct_mixed=False)
    assert Distil().correct_mixed
