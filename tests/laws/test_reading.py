"""The law of reading: a learner that is asked by callbacks learns, answers and counts as if nobody had asked."""

from __future__ import annotations

import torch

from iblurry.experiment.run_state import without_trace
from tests.laws.lawful import SAMPLES, assert_same_state, new_learner

LABELS = torch.arange(SAMPLES) % 5
IMAGES = (torch.arange(SAMPLES * 64).reshape(SAMPLES, 1, 8, 8) * 7 % 251).to(torch.uint8)


def test_reading_leaves_no_trace(lawful):
    plain, read = new_learner(lawful), new_learner(lawful)
    often = 20 if lawful.refit is not None else 3  # a fresh network each time
    for i in range(SAMPLES):
        for learner in (plain, read):
            learner.observe(IMAGES[i], int(LABELS[i]))
        if i % often == 0:
            with without_trace(read):
                read.predict(IMAGES[:3])
        if i == SAMPLES // 2:
            for learner in (plain, read):
                learner.end_task()
        if i % (2 * often) == 0:
            assert torch.equal(plain.logits(IMAGES[:5]), read.logits(IMAGES[:5]))
            with without_trace(read):
                read.predict(IMAGES[:3])
    assert_same_state(read.state_dict(), plain.state_dict())
    assert_same_state(read.context.queries.state_dict(), plain.context.queries.state_dict())
