"""Parts that came after the paper: their arithmetic in a few lines of NumPy, and what they do to a learner."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.augment import Augment
from iblurry.errors import InputError
from iblurry.learner.learner import Learner
from iblurry.methods import METHODS, Hyperparameters
from iblurry.parts import (
    AsymmetricCrossEntropy,
    Averaged,
    ScheduledPrior,
    StoredLogits,
)
from iblurry.parts.context import Forward

RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 256, (200, 1, 8, 8), dtype=np.uint8)
LABELS = RNG.integers(0, 4, 200)
IMAGES[np.arange(200), 0, LABELS] = 255  # a bright line tells the class


def new_learner(name, **slots):
    made = METHODS[name](Hyperparameters(batch=8), **slots)
    options = {"memory": 40, "network": "convnet:width=4", "classes": 5, "augment": Augment(pad=0, cutmix=0.5)}
    return Learner(made, image=(1, 8, 8), **options)


def taught(name, samples=60, **slots):
    learner = new_learner(name, **slots)
    for image, label in zip(IMAGES[:samples], LABELS[:samples], strict=True):
        learner.observe(image, int(label))
    return learner


def batch(logits, labels, *, partners=None, lam=1.0, streamed=0, rows=()):
    rows, lam = torch.tensor(rows, dtype=torch.int64), torch.tensor([lam])
    mixed = None if partners is None else torch.tensor(partners)
    return Forward(None, torch.tensor(logits), torch.tensor(labels), mixed, lam, streamed, rows, None)


# ------------------------------------------------------------------------------------------------ averages


@pytest.mark.parametrize("warm_up", [False, True])
def test_the_average_of_body_statistics_and_head_rows(warm_up):
    learner = new_learner("er", readout=Averaged(decay=0.9, warm_up=warm_up))
    average, network = learner.context.average(0.9, warm_up=warm_up).network, learner.context.network
    names = ("body.layers.0.0.weight", "body.layers.0.1.running_var")
    expected = {name: network.state_dict()[name].double() for name in names}
    rows, updates = {}, [0]  # of the head: average and updates

    def follow():
        updates[0] += 1
        values = network.state_dict()
        for name in names:
            expected[name] = mixed(expected[name], values[name], updates[0])
        for row, (value, count) in rows.items():
            rows[row] = (mixed(value, network.head.weight[row].detach(), count + 1), count + 1)

    def mixed(old, new, n):
        decay = min(0.9, (1 + n) / (10 + n)) if warm_up else 0.9
        return decay * old + (1 - decay) * new.double()

    learner.trainer.on_update = follow
    for at, label in enumerate([0] * 4 + [1] * 5 + [2] * 3):  # a round is four samples: a row is seen as it opens
        learner.observe(IMAGES[at], label)
        if at % 4 != 3 and label not in rows:
            rows[label] = (network.head.weight[label].detach().double(), 0)
    assert updates[0] == 12
    for name in names:
        torch.testing.assert_close(average.state_dict()[name].double(), expected[name], atol=1e-6, rtol=1e-5)
    assert {count for _, count in rows.values()} == {12, 8, 4}
    for row, (value, _) in rows.items():
        torch.testing.assert_close(average.head.weight[row].double(), value, atol=1e-6, rtol=1e-5)


# ------------------------------------------------------------------------------------------------ losses


def test_a_stream_batch_of_one_class_teaches_nothing():
    logits = torch.randn(4, 5, requires_grad=True)
    forward = batch([[0.0] * 5] * 4, [2] * 4, streamed=4)._replace(logits=logits)
    AsymmetricCrossEntropy().loss(forward).backward()
    assert float(logits.grad.abs().max()) == 0


@pytest.mark.parametrize("source", ["answer", "update"])
def test_what_is_stored_with_a_sample(source):
    """By its answer when it is stored, or by the last update of its round, which is not mixed then."""
    learner = taught("derpp", 0, terms=(StoredLogits(source=source),))
    term, seen = learner.method.terms[0], []
    step = learner.trainer._step

    def spying(stream, drawn, params, measure):
        done = step(stream, drawn, params, measure)
        seen.append(params.mixes)
        return done

    learner.trainer._step = spying
    for image, label in zip(IMAGES[:9], LABELS[:9], strict=True):  # three rounds of three
        learner.observe(image, int(label))
    with torch.no_grad():
        answers = learner.context.logits(torch.tensor(IMAGES[6:9]))
    stored = term.stored[6:9]
    assert torch.equal(stored, term.last[0]) if source == "update" else torch.allclose(stored, answers, atol=1e-5)
    assert len(seen) == 9
    assert not any(seen[2::3]) or source == "answer"


# ------------------------------------------------------------------------------------------------ SDP


def test_the_scheduled_average_has_the_age_asked_for():
    mean, variance = 200.0, 0.75
    slow, fast = ScheduledPrior(mean=mean, variance=variance).rates
    ages = np.arange(20_000)
    weights = (fast * slow * (1 - slow) ** ages - slow * fast * (1 - fast) ** ages) / (fast - slow)
    assert weights.min() >= 0
    assert weights[0] == 0
    assert weights.sum() == pytest.approx(1)
    assert (weights * ages).sum() == pytest.approx(mean - 1, rel=1e-6)
    assert (weights * ages**2).sum() - (weights * ages).sum() ** 2 == pytest.approx(variance * mean**2, rel=1e-6)
    assert ScheduledPrior().rates == pytest.approx((1.1715e-4, 6.8317e-4), rel=1e-4)
    with pytest.raises(InputError, match=r"variance=0\.4"):
        ScheduledPrior(variance=0.4)


def test_the_teacher_is_the_mixture_and_the_head_stays():
    learner = taught("sdp", terms=(ScheduledPrior(mean=20.0, variance=0.7, window=3),))
    term, network = learner.method.terms[0], learner.context.network
    r1, r2 = term.rates
    triples = zip(*(n.network.body.parameters() for n in (term.teacher, term.slow, term.fast)), strict=True)
    for mixed, slow, fast in triples:
        torch.testing.assert_close(mixed, (r2 * slow - r1 * fast) / (r2 - r1), atol=1e-5, rtol=1e-4)
    assert torch.equal(term.teacher.network.head.weight, network.head.weight)
    before = network.head.weight.clone()
    learner.observe(IMAGES[70], int(LABELS[70]))
    assert torch.equal(network.head.weight, before)
    counts = term.counts.double().numpy()
    assert counts.sum() == 61
    means = (term.recent.double().numpy().sum(1) / np.clip(counts, 1, 3))[counts > 0]
    wanted = np.clip(means.mean() - 1 / 4, 0, 1) * 4 / 5
    assert float(term.trust.value) == pytest.approx(wanted, rel=1e-5)
    rate = learner.trainer.optimizer.param_groups[0]["lr"]
    assert float(rate) == pytest.approx(3e-4 * (1 - wanted), rel=1e-5)


# ------------------------------------------------------------------------------------------------ SAR and NCM
