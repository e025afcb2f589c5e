"""Closed forms: the arithmetic in NumPy, any order of samples, classes at any moment, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import oas
from sklearn.linear_model import Ridge as SkRidge

from iblurry.errors import InputError
from iblurry.learner.cost import bytes_held
from iblurry.learner.learner import Learner
from iblurry.methods import er, ncm, randumb, ranpac, slda
from iblurry.network import FLOOR
from iblurry.parts import Discriminant, Everything, NearestMean, Ridge, RunningMean
from iblurry.parts.readout.closed_form import BLOCK

RNG = np.random.default_rng(5)
LABELS = RNG.integers(0, 4, 150)
IMAGES = RNG.integers(0, 160, (150, 1, 8, 8), dtype=np.uint8)
IMAGES[np.arange(150), 0, LABELS] += 90  # a bright line tells the class
TRAIN, TEST = slice(0, 90), slice(90, 150)  # more than a block, and not whole blocks
HEADS = {
    "ncm": ncm(),
    "plain mean": ncm(readout=RunningMean(normalise=False)),
    "slda": slda(),
    "slda fixed": slda(readout=Discriminant(shrinkage=0.1)),
    "ranpac": ranpac(readout=Ridge(width=40)),
    "ranpac fixed": ranpac(readout=Ridge(width=40, penalty=30.0)),
    "ridge of features": ranpac(readout=Ridge(expand="none", penalty=5.0)),
    "randumb": randumb(readout=Discriminant(of="pixels", expand="fourier", width=60)),
    "mirrored": slda(readout=Discriminant(mirror=True)),
}


def taught(method, order=range(90), **changes):
    options = {"memory": 5, "network": "mlp:width=20", "classes": 5} | changes
    learner = Learner(method, image=(1, 8, 8), **options)
    for at in order:
        learner.observe(IMAGES[at], int(LABELS[at]))
    return learner


def features(learner, images):
    """h(x) one by one, and the labels in the order of the head's rows."""
    readout = learner.method.readout
    return np.concatenate([readout.features(torch.tensor(image[None])).numpy() for image in images])


def rows(learner, labels):
    return np.array([learner.labels.index(int(label)) for label in labels])


def expected(name, h, y, asked):
    """Scores of four classes, from all features at once."""
    means = np.stack([h[y == c].mean(0) for c in range(4)])
    if name in ("ncm", "plain mean"):
        means /= np.linalg.norm(means, axis=1, keepdims=True) if name == "ncm" else 1
        return -((asked[:, None] - means) ** 2).sum(2)
    if name in ("slda", "slda fixed", "randumb"):
        centred = h - means[y]
        covariance = centred.T @ centred / len(h)
        level = np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        shrunk = 0.9 * covariance + 0.1 * level if "fixed" in name else oas(centred, assume_centered=True)[0]
        weights = np.linalg.inv(shrunk) @ means.T
        return asked @ weights - (means.T * weights).sum(0) / 2
    onehot = np.eye(4)[y]
    if name in ("ranpac fixed", "ridge of features"):
        model = SkRidge(alpha=30.0 if name == "ranpac fixed" else 5.0, fit_intercept=False).fit(h, onehot)
        return model.predict(asked)
    errors, answers = [], []
    for power in np.linspace(2, -6, 17):
        inner = np.linalg.inv(h.T @ h + np.trace(h.T @ h) / h.shape[1] * 10**power * np.eye(h.shape[1]))
        hat = h @ inner @ h.T
        errors.append(((onehot - hat @ onehot) ** 2).sum() / (len(h) - np.trace(hat)) ** 2)
        answers.append(asked @ inner @ h.T @ onehot)
    assert 0 < np.argmin(errors) < 16  # the choice is one
    return answers[int(np.argmin(errors))]


@pytest.mark.parametrize("name", [name for name in HEADS if name != "mirrored"])
def test_arithmetic(name):
    learner = taught(HEADS[name])
    h, asked = features(learner, IMAGES[TRAIN]), features(learner, IMAGES[TEST])
    scores = expected(name, h, rows(learner, LABELS[TRAIN]), asked)
    found = learner.logits(IMAGES[TEST]).numpy()
    np.testing.assert_allclose(found[:, :4], scores - scores.max(1, keepdims=True), rtol=1e-3, atol=1e-4)
    assert (found[:, 4] == FLOOR).all()
    right = np.mean(np.array(learner.predict(IMAGES[TEST])) == LABELS[TEST])
    assert right > 0.6


@pytest.mark.parametrize("name", HEADS)
def test_the_order_of_samples_does_not_matter(name):
    """Nor where task ends are, nor how much a memory may hold."""
    one = taught(HEADS[name])
    order = np.random.default_rng(8).permutation(90)
    other = taught(HEADS[name], order[:50], memory=77)
    other.end_task()
    for at in order[50:]:
        other.observe(IMAGES[at], int(LABELS[at]))
    assert one.labels != other.labels
    assert one.predict(IMAGES[TEST]) == other.predict(IMAGES[TEST])
    columns = [other.labels.index(label) for label in one.labels]
    np.testing.assert_allclose(
        one.logits(IMAGES[TEST])[:, :4], other.logits(IMAGES[TEST])[:, columns], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", HEADS)
def test_answers_from_the_first_sample_and_of_new_classes(name):
    learner = taught(HEADS[name], range(0))
    for at in range(30):
        learner.observe(IMAGES[at], int(LABELS[at]))
        logits = learner.logits(IMAGES[TEST])
        assert logits.isfinite().all()
        assert int(logits.argmax(1).max()) < len(learner.labels)
        if at < 3 and not isinstance(HEADS[name].readout, Ridge):  # whose penalty outweighs so few
            assert learner.predict(IMAGES[at : at + 1]) == [LABELS[at]]


def test_running_mean_is_the_nearest_mean_of_a_memory_that_holds_everything():
    running = taught(ncm())
    stored = taught(ncm(admission=Everything(), readout=NearestMean()), memory=90)
    a, b = running.logits(IMAGES[TEST]), stored.logits(IMAGES[TEST])
    torch.testing.assert_close(a[:, :4], (b - b.amax(1, keepdim=True))[:, :4], atol=1e-5, rtol=1e-4)


def test_mirrored_samples_count_twice():
    learner = taught(HEADS["mirrored"])
    twice = taught(slda(), range(0))
    for at in range(90):
        twice.observe(IMAGES[at], int(LABELS[at]))
        twice.observe(IMAGES[at][:, :, ::-1].copy(), int(LABELS[at]))
    torch.testing.assert_close(learner.logits(IMAGES[TEST]), twice.logits(IMAGES[TEST]), atol=1e-4, rtol=1e-4)
    assert learner.context.spent.forward["parts"] == 2 * 90


def test_no_hole_where_samples_are_as_many_as_features():
    """With next to no shrinkage accuracy falls there; relative to the trace it does not."""
    wide = {"of": "pixels", "expand": "fourier", "width": 86}  # 90 samples, less the means of four classes
    at = {}
    for amount in (None, 0.1, 1e-6):
        learner = taught(slda(readout=Discriminant(shrinkage=amount, **wide)))
        at[amount] = np.mean(np.array(learner.predict(IMAGES[TEST])) == LABELS[TEST])
    assert min(at[None], at[0.1]) > at[1e-6] + 0.15


def test_nothing_is_kept_but_sums():
    learner = taught(slda())
    held = bytes_held(learner)
    size = 20
    assert held["memory"] == held["aside"] == held["optimizer"] == 0
    assert held["parts"] == 8 * (5 + 5 * size + size * size + BLOCK * size)
    assert learner.context.updates == 0
    assert learner.context.spent.forward["parts"] == 90  # one pass a sample
    assert taught(HEADS["randumb"]).context.spent.forward["parts"] == 0  # without a network


def test_a_body_that_is_trained_is_refused():
    with pytest.raises(InputError, match="Discriminant"):
        taught(er(readout=Discriminant()), memory=20)
    taught(er(readout=Discriminant()), memory=20, freeze="body")
    taught(er(readout=randumb().readout), range(3), memory=20)  # of pixels: nothing to go stale
