from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from iblurry.engine.stacked import GroupedNetwork
from iblurry.parts import Diverse
from iblurry.parts.admission.diverse import in_proportion


def gradient(context, images, labels):
    network = context.network
    network.eval()
    loss = F.cross_entropy(network(context.pipeline.test(images)), labels)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(network.parameters()))])


@pytest.mark.parametrize("at_once", [False, True])
def test_scores_are_one_plus_the_largest_cosine(make_context, offer, at_once):
    part = Diverse(batches=3, size=2).attach(make_context(4, body="convnet:width=4"))
    assert part.grouped is None  # on a CPU
    part.grouped = GroupedNetwork(part.context.network, 4) if at_once else None
    counted = part.context.network.meter.counter
    offer(part, 0, 0)
    assert float(part.similarity[0]) == 2  # the first of all
    for i, label in enumerate([1, 0, 2], start=1):
        memory = part.context.memory
        batches = [
            part.context.rng.sample_without_replacement(
                "diverse rows", (memory.offered + 1) * 3 + b, min(2, i), population=i
            )
            for b in range(3)
        ]
        theirs = [gradient(part.context, memory.images[rows], memory.labels[rows]) for rows in batches]
        before = counted.forward["parts"], counted.backward["parts"]
        row = offer(part, label, i)
        assert row == i
        passed = 1 + 3 * min(2, i)
        assert (counted.forward["parts"], counted.backward["parts"]) == (before[0] + passed, before[1] + passed)
        mine = gradient(part.context, memory.images[row : row + 1], memory.labels[row : row + 1])
        expected = 1 + max(float(F.cosine_similarity(g, mine, dim=0)) for g in theirs)
        assert float(part.similarity[row]) == pytest.approx(expected, abs=1e-4)


def test_only_a_newcomer_unlike_the_memory_may_replace(make_context, offer):
    part = Diverse(batches=2, size=2).attach(make_context(3))
    for i in range(3):
        offer(part, i, i)
    part.similarity[:3] = torch.tensor([0.5, 1.5, 1.0], dtype=torch.float64)
    outcomes = []
    for step in range(400):
        part.context.memory.offered = 10 + step
        part.new_score.fill_(new := 1.2 if step % 2 else 0.5)
        outcomes.append(int(part.choose_row(None)))
        first, second = part.context.rng.uniforms("diverse", 10 + step, 2).tolist()
        row, score = next((row, s) for row, s in enumerate([0.5, 1.5, 1.0]) if 3 * first < [0.5, 2.0, 3.0][row])
        assert outcomes[-1] == (row if new < 1 and second < score / (score + new) else 3)
    assert set(outcomes[1::2]) == {3}  # similarity of 1.2: turned away, each time
    taken = np.bincount(outcomes[::2], minlength=4) / 200
    chance = np.array([0.5, 1.5, 1.0]) / 3 * np.array([0.5 / 1.0, 1.5 / 2.0, 1.0 / 1.5])
    np.testing.assert_allclose(taken[:3], chance, atol=5 * np.sqrt(0.25 / 200))
    assert taken[3] == pytest.approx(1 - chance.sum(), abs=5 * np.sqrt(0.25 / 200))


def test_in_proportion():
    scores = torch.tensor([0.0, 2.0, 1.0, 0.0], dtype=torch.float64)
    rows = [int(in_proportion(scores, torch.tensor([u], dtype=torch.float64))[0]) for u in (0.01, 0.6, 0.7, 0.99)]
    assert rows == [1, 1, 2, 2]
