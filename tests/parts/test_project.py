from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from iblurry.engine.network import OptimizedNetwork
from iblurry.methods import Hyperparameters, agem
from iblurry.parts import Project
from iblurry.parts.context import Drawn
from iblurry.parts.gradient.gradient import project
from tests.laws.lawful import new_learner


def test_golden(golden):
    for case in golden["agem"]:
        gradient = torch.tensor(case["g"], dtype=torch.float64)
        reference = torch.tensor(case["ref"], dtype=torch.float64)
        assert float(gradient @ reference) == case["dot"]
        halves = [gradient[:2].clone(), gradient[2:].clone()]  # over all parameters together
        project(halves, [reference[:2], reference[2:]])
        np.testing.assert_allclose(torch.cat(halves), case["projected"], atol=1e-12)
        after = float(torch.cat(halves) @ reference)
        assert after == pytest.approx(case.get("check_dot_after", case["dot"]), abs=1e-12)


def test_the_step_never_raises_the_loss_of_the_reference_rows_to_first_order(samples):
    learner = new_learner(agem(Hyperparameters(batch=8), gradient=(Project(count=12),)), network="mlp")
    rule, seen = learner.method.gradient[0], []

    def watched(drawn, adjust=rule.adjust):
        before = [p.grad.clone() for p in learner.context.network.parameters()]
        adjust(drawn)
        if len(drawn.rows):
            batch = learner.context.memory.read(drawn.rows)
            images = learner.context.pipeline.vary(batch.images, drawn.augment_params)
            reference = learner.context.gradient(images, batch.labels)
            after = [p.grad for p in learner.context.network.parameters()]
            dots = [sum(float((g * r).sum()) for g, r in zip(gs, reference, strict=True)) for gs in (before, after)]
            seen.append(dots)

    rule.adjust = watched
    for image, label in samples:
        learner.observe(image, label)
    before, after = np.array(seen).T
    assert (after >= -1e-5 * np.abs(before).max()).all()
    assert (before < -1e-3).any()  # it had work to do
    np.testing.assert_allclose(after[before > 0], before[before > 0], rtol=1e-4)  # and left the others alone


def normed(image):
    """A body of a user's, whose batch norm counts its batches."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8))


@pytest.mark.parametrize(
    "network, has_kernels, overlaps", [("convnet", True, True), ("convnet", False, False), (normed, True, False)]
)
def test_the_reference_pass_waits_where_it_must(samples, network, has_kernels, overlaps, monkeypatch):
    monkeypatch.setattr(OptimizedNetwork, "has_kernels", has_kernels)
    learner = new_learner(agem(Hyperparameters(batch=8), gradient=(Project(count=12),)), network=network)
    engine, asked = learner.context.engine, set()
    side_by_side = engine.side_by_side

    def watched(main, others, *, overlap=True):
        if others:
            asked.add(overlap)
        return side_by_side(main, others, overlap=overlap)

    engine.side_by_side = watched
    for image, label in samples[:20]:
        learner.observe(image, label)
    assert asked == {overlaps}


def test_nothing_to_refer_to_changes_nothing(make_context):
    rule = Project().attach(make_context(2))
    for p in rule.context.network.parameters():
        p.grad = torch.ones_like(p)
    rule.adjust(Drawn(torch.zeros(0, dtype=torch.int64), None))
    assert all((p.grad == 1).all() for p in rule.context.network.parameters())
