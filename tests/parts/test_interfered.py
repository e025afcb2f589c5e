from __future__ import annotations

import copy
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from iblurry.methods import Hyperparameters, mir
from iblurry.parts import Interfered
from iblurry.parts.context import Drawn
from iblurry.parts.memory import Batch
from iblurry.parts.rehearsal.interfered import most_interfered
from iblurry.rng import Rng
from tests.laws.lawful import new_learner


def test_golden(golden):
    case = golden["mir"]
    before, after = torch.tensor(case["pre_loss"]), torch.tensor(case["post_loss"])
    torch.testing.assert_close(after - before, torch.tensor(case["scores"]))
    assert most_interfered(before, after, 3).tolist() == case["top3"]
    assert Interfered().candidates == case["candidates"]


@pytest.fixture
def asked(samples):
    """Makes a learner that has met forty samples; its rule is asked about four of them and the rows after."""

    def make(network):
        learner = learner_of(network=network)
        for image, label in samples[:40]:
            learner.observe(image, label)
        context = learner.context
        params = context.pipeline.draw_params(Rng(9), 0, 16)
        stream = Batch(context.memory.images[:4], context.memory.labels[:4])
        return context, learner.method.rehearsal, stream, Drawn(torch.arange(4, 16), params)

    return make


def learner_of(**options):
    return new_learner(mir(Hyperparameters(batch=8), rehearsal=Interfered(count=4, candidates=12)), **options)


def test_it_chooses_the_rows_whose_loss_a_plain_step_raises_most(asked):
    context, rule, stream, drawn = asked("mlp")
    context.counters.lr = 0.5  # large, so that the ranking is clear
    chosen = rule.choose(stream, drawn)
    moved = copy.deepcopy(context.network)
    loss = F.cross_entropy(moved(context.pipeline.vary(stream.images, drawn.augment_params)), stream.labels)
    gradient = torch.autograd.grad(loss, list(moved.parameters()))
    with torch.no_grad():
        for p, g in zip(moved.parameters(), gradient, strict=True):
            p -= 0.5 * g
        images, labels = context.pipeline.test(context.memory.images[4:16]), context.memory.labels[4:16]
        rise = [F.cross_entropy(n(images), labels, reduction="none") for n in (moved, context.network)]
    order = (rise[0] - rise[1]).argsort(descending=True)[:4] + 4
    assert chosen.tolist() == order.tolist()
    assert (rise[0] - rise[1])[chosen - 4].min() >= (rise[0] - rise[1]).median()


def test_the_virtual_network_keeps_its_statistics_to_itself(asked):
    context, rule, stream, drawn = asked("convnet")
    plain = copy.deepcopy(context.network).train()
    plain(context.pipeline.vary(stream.images, drawn.augment_params))
    plain(context.pipeline.test(context.memory.images[4:16]))
    rule.choose(stream, drawn)
    for (name, moved), (_, expected) in zip(context.network.named_buffers(), plain.named_buffers(), strict=True):
        torch.testing.assert_close(moved, expected, msg=name)


def test_the_virtual_step_is_on_the_images_of_the_update(samples, monkeypatch):
    learner, varied = learner_of(), []
    pipeline = learner.context.pipeline
    vary = pipeline.vary
    monkeypatch.setattr(pipeline, "vary", lambda *given: varied.append(vary(*given)) or varied[-1].clone())
    for image, label in samples[:16]:
        learner.observe(image, label)
    virtual, update = varied[-2:]
    assert len(virtual) == 4
    assert len(update) == 8
    assert torch.equal(virtual, update[:4])


def test_what_the_passes_side_by_side_read_is_kept_until_both_are_done(samples, monkeypatch):
    """On a GPU memory that is freed before goes to the backward pass, which overwrites it."""
    learner, done = new_learner(mir(Hyperparameters(batch=8))), []
    network, engine = learner.context.network, learner.context.engine

    side_by_side = engine.side_by_side

    @contextmanager
    def constant():
        yield
        done.append("freed")

    def watched(main, others, **keywords):
        found = side_by_side(main, others, **keywords)
        done.extend(["joined"] * bool(others))
        return found

    monkeypatch.setattr(network, "constant", constant)
    monkeypatch.setattr(engine, "side_by_side", watched)
    for image, label in samples[:16]:
        learner.observe(image, label)
    assert "joined" in done
    assert all(after == "freed" for one, after in pairwise(done) if one == "joined")


def test_an_empty_memory_has_no_rows_to_offer(make_context):
    rule = Interfered().attach(make_context(4))
    stream, nothing = Batch(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.zeros(1)), torch.zeros(0).long()
    assert len(rule.choose(stream, Drawn(nothing, None))) == 0
    assert (rule.joins(0), rule.joins(5), rule.joins(90), rule.rows_per_update) == (0, 5, 8, 50)
