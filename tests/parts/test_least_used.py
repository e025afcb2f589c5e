"""LeastUsed (SAR): what is drawn and what is learnt of classes, worked out again in NumPy, and the law of the draw."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.parts import LeastUsed
from iblurry.parts.context import Drawn, Forward, Update
from iblurry.parts.memory import Batch, Sample

LABELS = [0, 2, 0, 1, 2, 2, 3, 0, 1]  # of the rows; head row 4 is of no class yet
NOTHING = Batch(torch.zeros(0, 1, 8, 8, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))
NO_ROWS = torch.zeros(0, dtype=torch.int64)


@pytest.fixture
def part(make_context):
    """Makes the part on a memory of which nine of twelve rows are filled, with irregular numbers in its state."""

    def make(**fields):
        context = make_context(12, 5, body="mlp:width=3")
        for label in LABELS:
            one = Sample(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.tensor([label]), label)
            context.memory.write(context.memory.next_row(), one)
        made, rng = LeastUsed(**fields).attach(context), np.random.default_rng(4)
        made.uses[:9] = torch.tensor(rng.uniform(0, 3, 9))
        for value in (made.class_uses, made.errors, made.features, made.spread, made.started):
            value.copy_(torch.tensor(rng.normal(size=value.shape)).float())
        made.class_uses.abs_().mul_(4)
        made.started.abs_().clamp_(max=1)
        made.errors[4] = made.class_uses[4] = made.started[4] = 0
        assert made.spread.min() < 0 < made.spread.max()
        return made

    return make


def cosines(a, b):
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)).clip(1e-8)


def similarities(part):
    if part.similarity != "head":
        return np.eye(5) * (part.similarity == "own")
    errors, features, spread, started = (
        value.double().numpy() for value in (part.errors, part.features, part.spread, part.started)
    )
    trust = np.sqrt(spread.clip(0)) * started
    return cosines(errors[:, None], errors) * cosines(features[:, None], features) * np.outer(trust, trust)


@pytest.mark.parametrize("similarity", ["head", "own", "none"])
@pytest.mark.parametrize("normalise, temperature", [(True, 0.3), (False, 2.0)])
def test_what_is_drawn(part, similarity, normalise, temperature):
    part = part(count=3, horizon=1.7, temperature=temperature, similarity=similarity, normalise=normalise)
    similar, uses, class_uses = similarities(part), part.uses[:9].numpy().copy(), part.class_uses.double().numpy()
    np.testing.assert_allclose(part.similarities(), similar, atol=1e-6)
    for step in range(30):
        numbers = part.draw_rows("draws", step, 9)
        assert numbers == (part.context.rng.uniforms("draws", step, 12) * 2**53).astype(int).tolist()
        assert isinstance(numbers, list)
        uses, class_uses = uses * (1 - 3 / (9 * 1.7)), class_uses * (1 - 3 / (9 * 1.7))
        used, own = (similar @ class_uses)[LABELS], np.diag(similar)[LABELS]
        h = np.maximum(0, (uses * (1 - own) + used) / 9) if normalise else uses + used
        uniforms = (np.array(numbers[:9], dtype=float) + 0.5) / 2**53
        wanted = np.argsort(-(-np.log(-np.log(uniforms)) - h / temperature))[:3]
        chosen = part.choose(NOTHING, Drawn(torch.tensor(numbers), None))
        assert chosen.tolist() == wanted.tolist()
        uses[wanted] += 1
        np.add.at(class_uses, np.array(LABELS)[wanted], 1)
        np.testing.assert_allclose(part.uses[:9], uses, rtol=1e-5)
        np.testing.assert_allclose(part.class_uses, class_uses, rtol=1e-4)


@pytest.mark.parametrize("count, discount", [(9, 1.0), (8, 1 - 8 / (9 * 4))])
def test_uses_are_discounted_where_there_is_a_choice(part, count, discount):
    part = part(count=count, similarity="none")
    uses = part.uses[:9].clone()
    rows = part.choose(NOTHING, Drawn(torch.tensor(part.draw_rows("draws", 0, 9)), None))
    uses = uses * discount
    uses[rows] += 1
    torch.testing.assert_close(part.uses[:9], uses)


def test_what_is_learnt_of_classes(part):
    """Errors and features of each class, and how alike they are; as many steps as the batch has samples of it."""
    part, labels = part(rate=0.03), np.array([2, 0, 2, 3, 2, 0])
    means = [part.errors.double().numpy(), part.features.double().numpy()]
    spread, started = part.spread.double().numpy(), part.started.double().numpy()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        logits, features = rng.normal(size=(6, 5)), rng.normal(size=(6, 3))
        errors = np.exp(logits) / np.exp(logits).sum(1, keepdims=True) - np.eye(5)[labels]
        alike = cosines(errors, means[0][labels]) * cosines(features, means[1][labels])
        for label in np.unique(labels):
            own = labels == label
            share = 1 - 0.97 ** own.sum()
            for mean, values in zip(means, (errors, features), strict=True):
                mean[label] += share * (values[own].mean(0) - mean[label])
            spread[label] += share * (alike[own].mean() - spread[label])
            started[label] += share * (1 - started[label])
        of = {"images": None, "partners": None, "lam": torch.ones(1), "streamed": 0, "rows": NO_ROWS}
        logits, features = (torch.tensor(values).float() for values in (logits, features))
        forward = Forward(logits=logits, features=features, labels=torch.tensor(labels), **of)
        part.on_update(Update(NO_ROWS, None, forward=forward))
        found = part.errors, part.features, part.spread, part.started
        for value, wanted in zip(found, (*means, spread, started), strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("similarity", ["own", "none"])
def test_nothing_is_learnt_of_classes_where_it_is_not_asked(part, similarity):
    part = part(similarity=similarity)
    before, of = part.errors.clone(), {"images": None, "partners": None, "lam": torch.ones(1), "streamed": 0}
    given = {"logits": torch.ones(1, 5), "features": torch.ones(1, 3), "labels": torch.tensor([0]), "rows": NO_ROWS}
    part.on_update(Update(NO_ROWS, None, forward=Forward(**of, **given)))
    assert torch.equal(part.errors, before)


def test_a_draw_follows_its_law(part):
    """Without uses every row is as likely as another; an empty one is never drawn."""
    part, counts = part(count=3, similarity="none"), np.zeros(12)
    for step in range(400):
        part.uses.zero_()
        rows = part.choose(NOTHING, Drawn(torch.tensor(part.draw_rows("law", step, 9)), None))
        counts[rows.numpy()] += 1
        assert len(set(rows.tolist())) == 3
    assert np.abs(counts[:9] / 400 - 3 / 9).max() < 5 * np.sqrt(2 / 9 / 400)
    assert not counts[9:].any()


def test_draws_keep_their_shape_while_the_memory_fills(part):
    assert [len(part(count=8).draw_rows("draws", 0, size)) for size in (1, 7, 8, 11)] == [1, 7, 12, 12]
    few = part(count=8)
    assert sorted(few.choose(NOTHING, Drawn(torch.tensor(few.draw_rows("draws", 0, 7)), None)).tolist()) == [*range(7)]
