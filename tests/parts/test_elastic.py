from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from iblurry.errors import InputError
from iblurry.methods import Hyperparameters, er, ewc
from iblurry.parts import Elastic
from iblurry.parts.context import Forward, Update
from tests.laws.lawful import new_learner

NO_ROWS = Update(torch.zeros(0, dtype=torch.int64), None)


@pytest.fixture
def two_numbers(make_context):
    """A bench whose network's body is two numbers."""
    context = make_context(2)
    context.network.body = nn.Linear(2, 1, bias=False)
    return context


@pytest.mark.parametrize(
    "skip_first, key", [(True, "fisher_official_after_each"), (False, "fisher_without_first_skip")]
)
def test_golden(golden, two_numbers, skip_first, key):
    case = golden["ewcpp"]
    term = Elastic(strength=case["reg_coef"], decay=case["alpha"], skip_first=skip_first).attach(two_numbers)
    theta = two_numbers.network.body.weight
    for gradient, expected in zip(case["batch_gradients"], case[key], strict=True):
        theta.grad = torch.tensor([gradient])
        term.on_update(NO_ROWS)
        np.testing.assert_allclose(term.fisher["weight"][0], expected or [0, 0], atol=1e-7)
    if not skip_first:
        return
    with torch.no_grad():
        theta.copy_(torch.tensor([case["anchor"]]))
    term.on_boundary()
    with torch.no_grad():
        theta.copy_(torch.tensor([case["theta"]]))
    theta.grad = None
    loss = term.loss(None)
    term.add_gradient()
    assert float(loss) == pytest.approx(case["reg_loss"])
    np.testing.assert_allclose(theta.grad[0], case["reg_grad"], rtol=1e-6)


def test_a_frozen_body_has_no_penalty(two_numbers):
    two_numbers.network.body.requires_grad_(False)
    term, logits = Elastic().attach(two_numbers), torch.ones(3, 4)
    assert float(term.loss(Forward(None, logits, None, None, None, 0, None, None))) == 0
    term.on_update(NO_ROWS)
    term.add_gradient()
    assert two_numbers.network.body.weight.grad is None


def feed(learner, samples):
    for at, (image, label) in enumerate(samples, start=1):
        learner.observe(image, label)
        if at == 30:
            learner.end_task()
            anchor = [p.detach().clone() for p in learner.context.network.body_parameters()]
    after = learner.context.network.body_parameters()
    return sum(float((a - b).detach().square().sum()) for a, b in zip(after, anchor, strict=True))


def test_parameters_stay_closer_to_the_anchor_than_without(samples):
    hyperparameters = Hyperparameters(batch=8)
    learner = new_learner(ewc(hyperparameters, terms=(er().terms[0], Elastic(strength=1e4))))
    held = feed(learner, samples)
    assert max(float(f.max()) for f in learner.method.terms[1].fisher.values()) > 0  # not silently zero
    assert held < 0.9 * feed(new_learner(er(hyperparameters)), samples)


def test_the_fisher_really_grows(samples):
    """A gradient that torch sets to None between two updates would leave it at zero, and EWC++ would be ER."""
    learner = new_learner(ewc(Hyperparameters(batch=8)))
    for image, label in [*samples, *samples[:4]]:
        learner.observe(image, label)
    assert learner.context.updates == 64
    fisher = learner.method.terms[1].fisher
    assert fisher.keys() == dict(learner.context.network.body.named_parameters()).keys()
    for name, values in fisher.items():
        assert values.isfinite().all(), name
        assert values.max() > 0, name


def test_bad_fields():
    with pytest.raises(InputError, match="decay"):
        Elastic(decay=1)
