"""Terms of the loss: value and gradient of each, worked out again in NumPy on a few samples of irregular numbers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from iblurry.augment.pipeline import Augment
from iblurry.methods import Hyperparameters, derpp, ewc, sdp
from iblurry.network import FLOOR
from iblurry.parts import (
    AdjustedCrossEntropy,
    AsymmetricCrossEntropy,
    AverageTeacher,
    CrossEntropy,
    Distil,
    Elastic,
    MomentumDistil,
    ScheduledPrior,
    StoredLogits,
)
from iblurry.parts.context import TRUST, Forward, Update
from iblurry.parts.memory import Sample
from iblurry.parts.terms.distil import distillation
from iblurry.parts.terms.term import cross_entropy_by_hand
from tests.laws.lawful import new_learner

ROWS, CLOSED = 5, 4  # head rows, the last of them closed
LABELS, PARTNERS, LAM = np.array([0, 2, 1, 0, 3, 2, 1]), np.array([2, 0, 3, 3, 1, 2, 0]), 0.3
MIXED = pytest.mark.parametrize("lam", [1.0, LAM], ids=["plain", "mixed"])
NO_ROWS = Update(torch.zeros(0, dtype=torch.int64), None)


def numbers(*shape, seed=1, spread=2.0):
    return np.random.default_rng(seed).normal(size=shape) * spread


@pytest.fixture
def context(make_context):
    """Five head rows of which one is closed, behind a body with batch norm."""
    context = make_context(12, ROWS, body="convnet:width=2")
    context.network.close_row(CLOSED)
    return context


@pytest.fixture
def images():
    return torch.tensor(numbers(7, 1, 8, 8, seed=2)).float()


def batch(logits, *, lam=1.0, streamed=0, rows=(), **given):
    """The training pass of as many samples as there are logits, mixed where lam is less than 1."""
    logits = torch.tensor(logits).float().requires_grad_(True)
    count, mixed = len(logits), None if lam == 1 else torch.tensor(PARTNERS[: len(logits)])
    labels, rows = torch.tensor(LABELS[:count]), torch.tensor(rows, dtype=torch.int64)
    of = {"images": None, "features": None} | given
    return Forward(
        logits=logits, labels=labels, partners=mixed, lam=torch.tensor([lam]), streamed=streamed, rows=rows, **of
    )


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def targets(count, lam=1.0):
    """The share of each class in each of the first samples, (count, rows)."""
    return lam * np.eye(ROWS)[LABELS[:count]] + (1 - lam) * np.eye(ROWS)[PARTNERS[:count]]


def entropies(logits, wanted):
    return -(wanted * np.log(softmax(logits).clip(1e-300))).sum(1)


def divergence(teacher, student, t):
    """t^2 KL of the softened answers, the mean, and its gradient in the student's."""
    p, q = softmax(teacher / t), softmax(student / t)
    return t**2 * (p * np.log(p / q)).sum(1).mean(), t * (q - p) / len(student)


def check(loss, value, *leaves_and_gradients, rel=2e-5):
    assert float(loss.detach()) == pytest.approx(float(value), rel=rel)
    leaves, wanted = leaves_and_gradients[::2], leaves_and_gradients[1::2]
    found = torch.autograd.grad(loss, leaves)
    for one, gradient in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.double(), gradient, rtol=20 * rel, atol=rel * np.abs(gradient).max())


@MIXED
def test_cross_entropy(lam):
    logits, wanted = numbers(7, ROWS), targets(7, lam)
    forward = batch(logits, lam=lam)
    value, slope = entropies(logits, wanted).mean(), (softmax(logits) - wanted) / 7
    check(CrossEntropy().loss(forward), value, forward.logits, slope)
    loss, gradient = cross_entropy_by_hand(forward._replace(logits=forward.logits.detach()))
    assert float(loss) == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(gradient, slope, atol=1e-7)


@MIXED
def test_adjusted_cross_entropy(context, lam):
    """Logits are shifted by the logarithm of a running histogram of own labels, which moves before it is used."""
    term, prior = AdjustedCrossEntropy(decay=0.7, least=0.05).attach(context), np.zeros(ROWS)
    for size in (7, 3, 5):
        logits, wanted = numbers(size, ROWS, seed=size), targets(size, lam)
        prior = 0.7 * prior + 0.3 * np.bincount(LABELS[:size], minlength=ROWS) / size
        shifted = logits + np.log(np.maximum(prior, 0.05))
        forward = batch(logits, lam=lam)
        slope = (softmax(shifted) - wanted) / size
        check(term.loss(forward), entropies(shifted, wanted).mean(), forward.logits, slope)
    assert prior.min() < 0.05 < prior[3] < np.delete(prior, [3, 4]).min()
    np.testing.assert_allclose(term.prior, prior, rtol=1e-6)


@MIXED
@pytest.mark.parametrize("streamed", [0, 3, 7])
def test_asymmetric_cross_entropy(lam, streamed):
    logits, wanted = numbers(7, ROWS), targets(7, lam)
    masked = logits.copy()
    masked[:streamed, wanted[:streamed].sum(0) == 0] = FLOOR  # classes that are not among the streamed ones
    weights = np.where(np.arange(7) < streamed, 0.45 / max(1, streamed), 0.8 / max(1, 7 - streamed))
    forward = batch(logits, lam=lam, streamed=streamed)
    slope = (softmax(masked) - wanted) * weights[:, None]
    loss = AsymmetricCrossEntropy(stream_weight=0.45, memory_weight=0.8).loss(forward)
    check(loss, (entropies(masked, wanted) * weights).sum(), forward.logits, slope)


def test_distillation_golden(golden):
    case = golden["bic"]
    old, new = (torch.tensor(case[key], dtype=torch.float64) for key in ("old_logits", "new_logits"))
    assert float(distillation(old, new, case["T"])) == pytest.approx(case["distill_loss"], abs=1e-9)
    closed = torch.full((2, 2), FLOOR, dtype=torch.float64)  # classes the teacher did not know add nothing
    wide = distillation(torch.cat([old, closed], 1), torch.cat([new, closed], 1), case["T"])
    assert float(wide) == pytest.approx(case["distill_loss"], abs=1e-9)
    assert Distil().temperature == case["T"]


@MIXED
@pytest.mark.parametrize("correct_mixed", [True, False])
def test_distillation(context, lam, correct_mixed):
    """From answers corrected as the readout was, over the classes that the teacher knew."""
    term, t = Distil(temperature=3.0, correct_mixed=correct_mixed).attach(context), 3.0
    term.on_class(0)
    context.network.expose("new", torch.ones(context.network.features), torch.ones(1))
    context.shadow("teacher").on_rows_changed()  # as a learner says; the teacher does not know the class
    logits = numbers(7, ROWS)
    assert float(term.loss(batch(logits, lam=lam, prepared=term.prepare(torch.zeros(7, 1, 8, 8), None))).detach()) == 0
    old = numbers(7, ROWS, seed=3)
    old[:, CLOSED] = FLOOR
    pairs = np.stack([1 + numbers(ROWS, seed=4) / 9, numbers(ROWS, seed=5)], 1)
    pairs[CLOSED] = 1, 0
    context.correction.value.copy_(torch.tensor(pairs))
    forward = batch(logits, lam=lam, prepared=torch.tensor(old).float())
    corrected = old * pairs[:, 0] + pairs[:, 1] if correct_mixed or lam == 1 else old
    p, q = softmax(corrected[:, :CLOSED] / t), softmax(logits[:, :CLOSED] / t)
    value, slope = -(p * np.log(q)).sum(1).mean(), np.pad((q - p) / t / 7, ((0, 0), (0, 1)))
    check(term.loss(forward), value, forward.logits, slope)


def test_the_teacher_of_distillation_is_the_network_of_the_last_class_or_task_end(context, images):
    term, head = Distil().attach(context), context.network.head.bias

    def move(by):
        with torch.no_grad():
            head.add_(by)
            return context.network.eval()(images)

    at_class = move(0.5)
    assert not term.teaches
    term.on_class(1)
    move(0.25)
    assert term.prepare(images, None) is None
    at_end = move(0.125)
    term.on_boundary()
    move(1.0)
    torch.testing.assert_close(term.prepare(images, None), at_end)
    move(-1.375)
    term.on_class(2)
    torch.testing.assert_close(term.prepare(images, None), at_class)


@pytest.mark.parametrize("skip_first", [True, False])
def test_elastic(make_context, skip_first):
    """The Fisher estimate runs on; anchor and weight stay as they were at the last task end. Biases have no anchor."""
    context = make_context(2)
    context.network.body = body = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, bias=False), nn.Linear(1, 1))
    term = Elastic(strength=3.7, decay=0.8, skip_first=skip_first).attach(context)
    weights, unused = [body[0].weight, body[0].bias, body[1].weight], [*body[2].parameters()]
    slopes = [[numbers(*w.shape, seed=10 * at + k) for k, w in enumerate(weights)] for at in range(5)]

    def update(at):
        for w, g in zip(weights, slopes[at], strict=True):
            w.grad = torch.tensor(g).float()
        for w in unused:
            w.grad = torch.zeros_like(w)
        term.on_update(NO_ROWS)

    def expected(updates):
        fisher, *later = [[g**2 for g in slopes[at]] for at in range(int(skip_first), updates)]
        for squares in later:
            fisher = [0.8 * f + 0.2 * s for f, s in zip(fisher, squares, strict=True)]
        return fisher

    for at in range(4):
        update(at)
    assert float(term.loss(batch(numbers(2, 2)))) == 0  # no task has ended
    anchors = [w.detach().double().numpy().copy() for w in weights]
    term.on_boundary()
    update(4)
    for found, wanted in zip(term.fisher.values(), expected(5), strict=False):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    with torch.no_grad():
        for k, w in enumerate(weights):
            w += torch.tensor(numbers(*w.shape, seed=50 + k)).float()
            w.grad = torch.tensor(slopes[0][k]).float()
    for w in unused:
        w.grad = None
    value, loss = 0.0, term.loss(batch(numbers(2, 2)))
    term.add_gradient()
    for w, anchor, fisher, slope in zip(weights, anchors, expected(4), slopes[0], strict=True):
        offset = w.detach().double().numpy() - anchor
        value += 3.7 * (fisher * offset**2).sum()
        np.testing.assert_allclose(w.grad, slope + 2 * 3.7 * fisher * offset, rtol=1e-5)
    assert float(loss) == pytest.approx(value, rel=1e-5)
    assert not any(w.grad.any() for w in unused)  # weights that the body never uses


@pytest.fixture
def two_numbers(make_context):
    """A bench whose network's body is two numbers."""
    context = make_context(2)
    context.network.body = nn.Linear(2, 1, bias=False)
    return context


@pytest.mark.parametrize(
    "skip_first, key", [(True, "fisher_official_after_each"), (False, "fisher_without_first_skip")]
)
def test_elastic_golden(golden, two_numbers, skip_first, key):
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


@MIXED
@pytest.mark.parametrize(
    "streamed, rows", [(3, [9, 1, 4, 6]), (2, [9, 1, 4, 6, 3]), (6, [1]), (7, []), (0, [3, 1, 4, 0, 5, 9, 2])]
)
def test_stored_logits(context, lam, streamed, rows):
    """The streamed part, the first half of the rows, and the logits stored with the others, without unmet classes."""
    term = StoredLogits(alpha=0.3, beta=0.7).attach(context)
    stored, logits = numbers(13, ROWS, seed=3), numbers(7, ROWS)
    stored[:, CLOSED] = stored[4, 3] = stored[1, 2] = FLOOR
    term.stored.copy_(torch.tensor(stored))
    middle, last = streamed + len(rows) // 2, stored[rows[len(rows) // 2 :]]
    assert term.unmixed(len(rows)) == 7 - middle
    wanted, known = targets(7, lam), last > FLOOR
    weights = np.where(np.arange(7) < streamed, 1 / max(1, streamed), 0.7 / max(1, middle - streamed))
    weights[middle:] = 0
    value = (weights * entropies(logits, wanted)).sum()
    slope = weights[:, None] * (softmax(logits) - wanted)
    if rows:
        offsets = np.where(known, logits[middle:] - last, 0) / np.sqrt(len(last) * 4)  # four open classes
        value += 0.3 * (offsets**2).sum()
        slope[middle:] += 0.3 * 2 * offsets / np.sqrt(len(last) * 4)
    forward = batch(logits, lam=lam, streamed=streamed, rows=rows)
    check(term.loss(forward), value, forward.logits, slope)


@pytest.mark.parametrize("source", ["answer", "update"])
def test_what_is_stored_with_a_sample(source, samples):
    """By its answer when it is stored, or by the last update of its round, which is not mixed then."""
    method = derpp(Hyperparameters(batch=8), terms=(StoredLogits(source=source),))
    learner = new_learner(method, augment=Augment(pad=0, cutmix=0.5))
    term, seen = learner.method.terms[0], []
    step = learner.trainer._step

    def spying(stream, drawn, params, measure):
        done = step(stream, drawn, params, measure)
        seen.append(params.mixes)
        return done

    learner.trainer._step = spying
    for image, label in samples[:9]:  # three rounds of three
        learner.observe(image, label)
    with torch.no_grad():
        answers = learner.context.logits(torch.tensor(np.stack([image for image, _ in samples[6:9]])))
    stored = term.stored[6:9]
    assert torch.equal(stored, term.last[0]) if source == "update" else torch.allclose(stored, answers, atol=1e-5)
    assert len(seen) == 9
    assert not any(seen[2::3]) or source == "answer"


@pytest.mark.parametrize("batch_statistics, warm_up", [(False, False), (True, True)])
def test_average_teacher(context, images, batch_statistics, warm_up):
    term = AverageTeacher(weight=0.6, temperature=3.0, decay=0.9, warm_up=warm_up, batch_statistics=batch_statistics)
    kept = 2 / 11 if warm_up else 0.9  # min(decay, (1 + n) / (10 + n)) at the first update
    term, wanted, logits = term.attach(context), copy.deepcopy(context.network), numbers(7, ROWS)
    moved(context.network)
    for averaged, now in zip(wanted.state_dict().values(), context.network.state_dict().values(), strict=True):
        if averaged.is_floating_point():
            averaged.copy_(kept * averaged + (1 - kept) * now)
    term.teacher.on_update()
    with torch.no_grad():
        answers = wanted.train(batch_statistics)(images)
    (found,) = prepared = term.prepare(images, None)
    torch.testing.assert_close(found, answers)
    value, slope = divergence(answers.double().numpy()[:, :CLOSED], logits[:, :CLOSED], 3.0)
    logits[:, CLOSED] = FLOOR
    forward = batch(logits, prepared=prepared)
    check(term.loss(forward), 0.6 * value, forward.logits, np.pad(0.6 * slope, ((0, 0), (0, 1))))


def moved(network, seed=7):
    """Moves each weight and running statistic of the network, in place."""
    with torch.no_grad():
        for k, value in enumerate(network.state_dict().values()):
            if value.is_floating_point():
                value += torch.tensor(np.abs(numbers(*value.shape, seed=seed + k, spread=0.2)), dtype=value.dtype)


@pytest.mark.parametrize("views", ["teacher", "student", "one"])
def test_momentum_distillation(context, images, views):
    """Half of each view's divergence: of the teacher's plain view, or of the student's, from the teacher's answers."""
    term, t = MomentumDistil(weight=1.7, temperature=3.0, views=views).attach(context), 3.0
    plain, logits, teacher = images.flip(0) + 0.5, numbers(7, ROWS), copy.deepcopy(context.network).train()
    logits[:, CLOSED] = FLOOR
    moved(context.network)
    prepared = term.prepare(images, plain)
    with torch.no_grad():
        seen = [teacher(view) for view in ((images, plain) if views == "teacher" else (images,))]
        own = copy.deepcopy(context.network)(plain).double().numpy()[:, :CLOSED]
    for found, wanted in zip(prepared, seen, strict=True):
        torch.testing.assert_close(found, wanted)
    forward = batch(logits, prepared=prepared, plain=plain)
    first, *others = [divergence(one.double().numpy()[:, :CLOSED], logits[:, :CLOSED], t) for one in seen]
    value, slope = first
    for other in others:
        value, slope = (value + other[0]) / 2, (slope + other[1]) / 2
    if views == "student":
        value, slope = (value + divergence(seen[0].double().numpy()[:, :CLOSED], own, t)[0]) / 2, slope / 2
    check(term.loss(forward), 1.7 * value, forward.logits, np.pad(1.7 * slope, ((0, 0), (0, 1))))
    trains = torch.autograd.grad(term.loss(forward), context.network.head.weight, allow_unused=True)[0]
    assert (trains is not None and bool(trains.any())) == (views == "student")


@MIXED
def test_scheduled_prior(context, lam):
    """mean of (1 - w) CE + w beta |f - f'|^2; beta makes both pull equally hard and has no gradient of its own."""
    term, head = ScheduledPrior().attach(context), context.network.head.weight
    with torch.no_grad():
        head.copy_(torch.tensor(numbers(*head.shape, seed=4)))
    features, prepared = (torch.tensor(numbers(7, context.network.features, seed=s)).float() for s in (5, 6))
    features.requires_grad_(True)
    context.scalar(TRUST).value.fill_(0.35)
    logits, wanted = numbers(7, ROWS), targets(7, lam)
    forward = batch(logits, lam=lam, features=features, prepared=prepared)
    offsets = features.detach().double().numpy() - prepared.double().numpy()
    errors, distances = softmax(logits) - wanted, (offsets**2).sum(1)
    pulls = ((errors @ head.detach().double().numpy()) ** 2).sum(1)
    beta = np.sqrt(pulls / (4 * distances + 1e-8)).mean()
    value = (0.65 * entropies(logits, wanted) + 0.35 * beta * distances).mean()
    of_features = 0.35 * beta * 2 * offsets / 7
    check(term.loss(forward), value, forward.logits, 0.65 * errors / 7, features, of_features)


def test_a_prior_that_is_the_network_itself_pulls_at_nothing(context):
    """Where all distances are 0 what is added to them, 1e-8, alone decides the weight beta."""
    term, f = ScheduledPrior().attach(context), torch.zeros(7, context.network.features, requires_grad=True)
    context.scalar(TRUST).value.fill_(0.35)
    prepared = torch.full_like(f, 1e-5).detach()
    logits = numbers(7, ROWS)
    forward = batch(logits, features=f, prepared=prepared)
    errors = softmax(logits) - targets(7)
    pulls = ((errors @ context.network.head.weight.detach().double().numpy()) ** 2).sum(1)
    beta = np.sqrt(pulls / (4 * f.shape[1] * 1e-10 + 1e-8)).mean()
    wanted = np.full(f.shape, -0.35 * beta * 2 * 1e-5 / 7)
    np.testing.assert_allclose(torch.autograd.grad(term.loss(forward), f)[0].double(), wanted, rtol=1e-4)


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
    for bound in (0.26, 0.74):  # of those that exist
        ScheduledPrior(mean=4.0, variance=bound)


def test_the_scheduled_average(context, images):
    """A mixture of two averages of the body, with the network's own head and running statistics."""
    term = ScheduledPrior(mean=9.0, variance=0.6).attach(context)
    root, below = np.sqrt(2 * 0.6 - 1 + 2 / 9), 9 * 0.4 - 1
    r1, r2 = (1 - root) / below, (1 + root) / below
    assert term.rates == pytest.approx((r1, r2))
    slow, fast = ([p.detach().clone() for p in context.network.body.parameters()] for _ in range(2))
    for at in range(3):
        moved(context.network, seed=20 * at)
        for shadow in (term.slow, term.fast):
            shadow.on_update()
        term.on_update(NO_ROWS)
        for average, rate in ((slow, r1), (fast, r2)):
            for mean, now in zip(average, context.network.body.parameters(), strict=True):
                mean.copy_(mean + rate * (now.detach() - mean))
    wanted = copy.deepcopy(context.network)
    with torch.no_grad():
        for p, one, two in zip(wanted.body.parameters(), slow, fast, strict=True):
            p.copy_((r2 * one - r1 * two) / (r2 - r1))
    for (name, found), other in zip(term.teacher.state_dict().items(), wanted.state_dict().values(), strict=True):
        if found.is_floating_point():
            torch.testing.assert_close(found, other, rtol=1e-4, atol=1e-5, msg=name)
    with torch.no_grad():
        features = wanted.train().forward_both(images)[0]
    torch.testing.assert_close(term.prepare(images, None), features, rtol=1e-3, atol=1e-3)


def test_the_trust_in_the_scheduled_average(context):
    """Over the classes met, the mean of each class's last three probabilities of the right answer, in eval mode."""
    term, network, seen, trusts = ScheduledPrior(window=3).attach(context), context.network, {}, []
    moved(term.teacher.network, seed=3)
    term.teacher.network.head.weight *= 5
    images = torch.tensor(np.random.default_rng(3).integers(0, 256, (9, 1, 1, 8, 8), dtype=np.uint8))
    for at, image in enumerate(images):
        with torch.no_grad():
            answer = softmax(copy.deepcopy(term.teacher.network).eval()(context.pipeline.test(image))[0].numpy())
        label = int(np.argsort(answer)[-1 if at else 1])  # the first is answered wrong
        seen.setdefault(label, []).append(float(answer[label]))
        term.on_stored(torch.tensor([0]), Sample(image, torch.tensor([label]), label))
        mean = np.mean([np.mean(last[-3:]) for last in seen.values()])
        trusts.append(float(context.scalar(TRUST).value))
        assert trusts[-1] == pytest.approx(np.clip(mean - 1 / 4, 0, 1) * 4 / 5, rel=1e-5)  # four classes are open
    assert trusts[0] == 0 < trusts[-1]
    assert max(map(len, seen.values())) > 3
    assert network.open_rows == 4


def test_trust_slows_learning_and_the_head_stays(samples):
    """Through a learner: the rate is 3e-4 (1 - w), and the head's rows stay as they were drawn."""
    learner = new_learner(sdp(Hyperparameters(batch=8), terms=(ScheduledPrior(mean=20.0, variance=0.7, window=3),)))
    term, network = learner.method.terms[0], learner.context.network
    for image, label in samples[:59]:
        learner.observe(image, label)
    before = network.head.weight.clone()
    learner.observe(*samples[59])
    assert torch.equal(network.head.weight, before)
    assert int(term.counts.sum()) == 60
    assert 0 < float(term.trust.value) < 1
    rate = learner.trainer.optimizer.param_groups[0]["lr"]
    assert float(rate) == pytest.approx(3e-4 * (1 - float(term.trust.value)), rel=1e-5)
