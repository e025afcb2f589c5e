"""Readouts: their answers worked out again in NumPy, sample by sample, and what a correction takes back."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from iblurry.experiment.settings import setting
from iblurry.methods import Hyperparameters, bic, er, method
from iblurry.network import FLOOR
from iblurry.parts import Averaged, BiasCorrected, Discriminant, NearestMean, Plain, Ridge, RunningMean
from iblurry.parts.memory import Sample
from iblurry.parts.readout.bias_corrected import fit
from iblurry.parts.readout.discriminant import shrink
from tests.laws.lawful import new_learner

IMAGES = torch.tensor(np.random.default_rng(6).integers(0, 256, (30, 1, 1, 8, 8), dtype=np.uint8))
LABELS = [0, 2, 0, 1, 2, 0, 1, 1, 2, 0, 0, 2]
ASKED = IMAGES[20:, 0]


def moved(network, seed=7):
    with torch.no_grad():
        for k, value in enumerate(network.state_dict().values()):
            if value.is_floating_point():
                value += torch.tensor(np.abs(np.random.default_rng(seed + k).normal(size=value.shape)) / 5).to(value)


def sample(at, label):
    return Sample(IMAGES[at], torch.tensor([label]), label)


def learn(part, labels=LABELS):
    for at, label in enumerate(labels):
        part.on_stored(torch.tensor([0]), sample(at, label))
    return part


def answers(part):
    part.prepare()
    return part.logits(ASKED)


# ------------------------------------------------------------------------------------------------ of the network


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("of", ["average", "both"])
def test_averaged(make_context, of, mirror):
    context = make_context(2, body="convnet:width=2")
    part = Averaged(decay=0.7, of=of, mirror=mirror).attach(context)
    wanted = copy.deepcopy(context.network)
    moved(context.network)
    part.average.on_update()
    own = context.network.state_dict()
    for name, value in wanted.state_dict().items():
        if value.is_floating_point():
            value.lerp_(own[name], 0.3)
            if of == "both":
                value.lerp_(own[name], 1.0 if "running" in name else 0.5)
    views = [ASKED, ASKED.flip(3)] if mirror else [ASKED]
    with torch.no_grad():
        logits = [wanted.eval()(context.pipeline.test(view)) for view in views]
    torch.testing.assert_close(answers(part), sum(logits) / len(logits), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(answers(part), answers(Plain().attach(context)), atol=1e-2)


@pytest.mark.parametrize("warm_up", [False, True])
def test_the_average_over_many_updates_and_new_classes(warm_up, samples):
    averaged = er(Hyperparameters(batch=8), readout=Averaged(decay=0.9, warm_up=warm_up))
    learner = new_learner(averaged, network="convnet:width=4")
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
        learner.observe(samples[at][0], label)
        if at % 4 != 3 and label not in rows:
            rows[label] = (network.head.weight[label].detach().double(), 0)
    assert updates[0] == 12
    for name in names:
        torch.testing.assert_close(average.state_dict()[name].double(), expected[name], atol=1e-6, rtol=1e-5)
    assert {count for _, count in rows.values()} == {12, 8, 4}
    for row, (value, _) in rows.items():
        torch.testing.assert_close(average.head.weight[row].double(), value, atol=1e-6, rtol=1e-5)


def test_nearest_mean(make_context):
    context = make_context(40, 4, body="mlp:width=5")
    for at, label in enumerate(LABELS):
        context.memory.write(context.memory.next_row(), sample(at, label))
    part, unit = NearestMean().attach(context), lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    h, asked = (unit(context.features(images).double().numpy()) for images in (IMAGES[:12, 0], ASKED))
    means = unit(np.stack([h[np.array(LABELS) == label].mean(0) for label in range(3)]))
    found = answers(part)
    np.testing.assert_allclose(found[:, :3], -((asked[:, None] - means) ** 2).sum(2), atol=1e-5)
    assert (found[:, 3] == FLOOR).all()  # a class without a row
    assert part.prepare_every == 40 // 8


# ------------------------------------------------------------------------------------------------ closed forms

FORMS = {
    "mean": RunningMean(),
    "plain mean": RunningMean(normalise=False),
    "mirrored": RunningMean(mirror=True),
    "discriminant": Discriminant(shrinkage=0.2),
    "ridge": Ridge(expand="none", penalty=0.7),
    "mirrored ridge": Ridge(expand="none", penalty=0.7, mirror=True),
}


@pytest.fixture(params=FORMS)
def form(request, make_context):
    """Makes the form on a network that answers for four classes."""
    return lambda: FORMS[request.param].attach(make_context(2, 4, body="mlp:width=5"))


def test_another_label_is_as_if_it_had_been_the_first(form):
    part = learn(form())
    part.on_corrected(IMAGES[3], 1, 2)
    torch.testing.assert_close(answers(part), answers(learn(form(), [*LABELS[:3], 2, *LABELS[4:]])))


def test_a_sample_that_is_removed_was_never_learnt(form):
    part = learn(form())
    part.on_corrected(IMAGES[11], 2, None)
    torch.testing.assert_close(answers(part), answers(learn(form(), LABELS[:11])))


def test_a_class_that_is_merged_into_another(form):
    part = learn(form())
    part.on_class_closed(0, 2)
    torch.testing.assert_close(answers(part), answers(learn(form(), [2 if label == 0 else label for label in LABELS])))


def test_a_class_that_is_deleted(form):
    """Of its products those of the mean leave, which are all where it had one sample, learnt once."""
    part = learn(form(), [*LABELS, 3])
    part.on_class_closed(3, None)
    if not (part.mirror and isinstance(part, Ridge)):
        torch.testing.assert_close(answers(part), answers(learn(form())))
    part.on_class_closed(0, None)
    assert (answers(part)[:, [0, 3]] == FLOOR).all()


@pytest.mark.parametrize("mirror", [False, True])
def test_what_a_deleted_class_leaves_in_the_products(make_context, mirror):
    part = learn(Ridge(expand="none", mirror=mirror).attach(make_context(2, 4, body="mlp:width=5")))
    h = torch.cat([part.learnt_features(IMAGES[at]) for at in range(12)])
    own = h[np.repeat(LABELS, 1 + mirror) == 0]
    part.on_class_closed(0, None)
    left = h.T @ h - len(own) * torch.outer(own.mean(0), own.mean(0))
    torch.testing.assert_close(part.products(), left)


def test_random_features_of_relu(make_context):
    """relu(x R) with R ~ N(0, 1)."""
    part = Ridge(width=400).attach(make_context(2, 4, body="mlp:width=5"))
    matrix = part.drawn[0].double().numpy()
    drawn = (matrix.mean(), matrix.std())
    assert (matrix.shape, *drawn) == ((5, 400), pytest.approx(0, abs=0.1), pytest.approx(1, abs=0.05))
    x = part.context.features(ASKED).double().numpy()
    np.testing.assert_allclose(part.features(ASKED), np.maximum(x @ matrix, 0), rtol=1e-4, atol=1e-5)
    assert part.prepare_every == 50


def test_fourier_features_approximate_the_kernel(make_context):
    """sqrt(2 / width) cos(x R + u), with R and u drawn by the seed."""
    form = Ridge(of="pixels", expand="fourier", gamma=0.05, width=8000)
    part, other = form.attach(make_context(2, 4)), form.attach(make_context(2, 4, seed=2))
    h, x = part.features(ASKED), part.context.pixels(ASKED).double()
    kernel = torch.exp(-0.05 * torch.cdist(x, x).square() / 64)
    assert 0.1 < kernel.min() < kernel.max()
    assert (h @ h.T - kernel).abs().max() < 0.05
    matrix, phase = part.drawn
    torch.testing.assert_close(h, (2 / 8000) ** 0.5 * torch.cos(x @ matrix.double() + phase), atol=1e-5, rtol=0)
    assert 0 <= phase.min() < 0.01 < 2 * np.pi - 0.01 < phase.max() <= 2 * np.pi
    assert not torch.equal(matrix, other.drawn[0])


@pytest.mark.parametrize("seen, amount", [(3, None), (40, None), (40, 0.3)])
def test_shrinkage(seen, amount):
    """Oracle approximating (Chen et al., 2010, without its terms in 1 / d) unless given."""
    h = np.random.default_rng(seen).normal(size=(seen, 6)) * [1, 2, 3, 0.5, 1, 4]
    s, d = h.T @ h / seen, 6
    square, trace = np.trace(s @ s), np.trace(s)
    rho = amount or min(1, (square + trace**2) / ((seen + 1) * (square - trace**2 / d)))
    found = shrink(torch.tensor(s), torch.tensor(float(seen), dtype=torch.float64), amount)
    np.testing.assert_allclose(found, (1 - rho) * s + rho * trace / d * np.eye(d), rtol=1e-9)
    assert (rho == 1) == (seen == 3)


# ------------------------------------------------------------------------------------------------ BiC


@pytest.fixture
def validation(make_context):
    """BiC's readout with seven places, and what meets samples of these labels as a learner does."""
    context = dataclasses.replace(make_context(2, 6, body="mlp:width=5"), budget=23)
    context.network.close()
    part = BiasCorrected(share=0.3, epochs=9, batch=4, lr=0.02).attach(context)

    def meet(at, label):
        if label not in context.network.labels[: context.network.known]:
            part.on_class(label)
            context.network.expose(label, torch.linspace(-1, 1, 5) * (label + 1), torch.tensor([0.3 * label]))
        return part.takes(sample(at, label))

    return part, meet


def test_the_validation_set(validation):
    """Equal quotas of a share of the budget, cut at random when a class comes; what it takes is kept as it is."""
    (part, meet), rng, held = validation, np.random.default_rng(1), [None] * 7  # by place: label and sample
    draw = part.context.rng.sample_without_replacement
    assert part.samples_outside_memory(23) == part.size == 7
    assert [part.quota(classes) for classes in range(4)] == [7, 7, 3, 2]
    for at in range(30):
        label = int(rng.integers(0, 1 + at // 10))
        quota, of = part.quota(max(label + 1, part.context.network.known)), [one and one[0] for one in held]
        if label == part.context.network.known:
            for other in range(label):
                places = [i for i, owner in enumerate(of) if owner == other]
                excess = max(0, len(places) - quota)
                for i in draw("validation cut", 6 * label + other, excess, population=len(places)):
                    held[places[i]] = None
            of = [one and one[0] for one in held]
        room = of.count(label) < quota
        assert meet(at, label) == room
        if room:
            held[of.index(None)] = label, at
        assert part.owners == [-1 if one is None else one[0] for one in held]
        assert part.is_full() == (7 - held.count(None) == quota * part.context.network.known)
    kept = [(place, *one) for place, one in enumerate(held) if one is not None]
    assert [label for _, label, _ in kept].count(0) == 2 == len(kept) / 3
    for place, label, at in kept:
        assert int(part.labels[place]) == label
        assert torch.equal(part.images[place], IMAGES[at][0])


def test_the_bias_correction(validation):
    """Of the classes first met in this task, where it is not the first; a teacher is corrected as at the last end."""
    (part, meet), network = validation, validation[0].context.network
    still = torch.tensor([[1.0, 0.0]]).repeat(6, 1)

    def expected(newest):
        places = [place for place, owner in enumerate(part.owners) if owner >= 0]
        new = torch.zeros(6)
        new[newest] = 1
        return fit(part.context.logits(part.images[places]), part.labels[places], new, 9, 4, 0.02)

    def pairs():
        part.prepare()
        return part.pairs

    [meet(at, 0) for at in range(7)]
    assert torch.equal(pairs(), still)  # the first task
    part.on_boundary()
    assert torch.equal(part.at_last_boundary.value, still)
    meet(7, 0)
    assert torch.equal(pairs(), still)  # nothing new in the second
    meet(8, 1)
    assert torch.equal(pairs(), still)  # not full
    [meet(at, at % 2) for at in range(9, 20)]
    assert part.is_full()
    first = expected([1])
    torch.testing.assert_close(pairs(), first)
    assert not torch.equal(first, still)
    assert part.at_last_boundary is part.context.correction
    assert torch.equal(part.at_last_boundary.value, still)
    wanted = part.context.logits(ASKED) * first[:, 0] + first[:, 1]
    torch.testing.assert_close(part.logits(ASKED), wanted)
    part.on_boundary()
    torch.testing.assert_close(part.at_last_boundary.value, first)
    [meet(at, 2 + at % 2) for at in range(12)]
    [meet(at, at % 4) for at in range(20)]
    torch.testing.assert_close(pairs(), expected([2, 3]))
    assert (part.task, part.newest, network.known) == (2, [2, 3], 4)


def test_the_fit_of_the_bias_correction():
    """Adam with torch's constants, over batches of which the last is smaller."""
    rng = np.random.default_rng(3)
    logits, labels = torch.tensor(rng.normal(size=(11, 4)) * 2), torch.tensor(rng.integers(0, 4, 11))
    newest, pair = torch.tensor([0.0, 1.0, 0.0, 1.0]).double(), torch.tensor([1.0, 0.0]).double().requires_grad_(True)
    optimizer = torch.optim.Adam([pair], lr=0.03, betas=(0.9, 0.999), eps=1e-8)
    for _ in range(7):
        for some, wanted in zip(logits.split(4), labels.split(4), strict=True):
            optimizer.zero_grad()
            alpha, beta = 1 + newest * (pair[0] - 1), newest * pair[1]
            F.cross_entropy(alpha * some + beta, wanted).backward()
            optimizer.step()
    found = fit(logits, labels, newest, epochs=7, batch=4, lr=0.03)
    still = torch.tensor([1.0, 0.0]).double()
    wanted = torch.stack([pair.detach() if new else still for new in newest])
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)


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


def test_what_is_in_the_validation_set_is_never_trained_on(samples):
    learner = new_learner(bic(Hyperparameters(batch=8), readout=BiasCorrected(share=0.4)), memory=30)
    part, memory = learner.method.readout, learner.context.memory
    for image, label in samples:
        offered, free = memory.offered + len(learner.stream_batch), part.owners.count(-1)
        learner.observe(image, label)
        is_kept_aside = memory.offered + len(learner.stream_batch) == offered
        assert is_kept_aside == (part.owners.count(-1) < free) or label == learner.labels[-1]  # which may cut others
    assert part.size == round(0.4 * 26) == 10
    assert part.is_full()


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
