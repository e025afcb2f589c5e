"""Parts as the authors' released programs have them, and fields that no part may have."""

from __future__ import annotations

import pytest

from iblurry import parts
from iblurry.errors import InputError
from iblurry.parts import Adaptive, Distil, Exponential, Importance, MomentumDistil, Refit, StoredLogits

WRONG = {
    "Adaptive": [{"gamma": 1}, {"alpha": 0.6}, {"history": 1}, {"trial": 0}, {"rule": "x"}, {"test": "x"}],
    "BiasCorrected": [{"share": 1.0}],
    "Clip": [{"norm": 0}],
    "Constant": [{"initial_lr": 0}],
    "Cosine": [{"floor": 0.1}, {"cycle": 0}, {"warm": 0}],  # a floor above the rate at the start
    "Discriminant": [{"shrinkage": 0.0}, {"shrinkage": 1.5}, {"width": 0}, {"of": "images"}],
    "Distil": [{"temperature": 0}],
    "Diverse": [{"batches": 0}],
    "Elastic": [{"decay": 1}],
    "Exponential": [{"gamma": 1.1}, {"per": "epoch"}],
    "Importance": [{"step": 0}, {"step": 2}, {"rule": "own"}, {"decrease": "some"}],
    "Interfered": [{"count": 9, "candidates": 8}],
    "MultiStep": [{"milestones": (30, 30)}, {"milestones": (0,)}, {"factor": 2}],
    "Project": [{"count": 0}],
    "Refit": [{"at": "dawn"}, {"epochs": 0}, {"frozen_norm": True}],  # a fresh network has no statistics to keep
    "Ridge": [{"penalty": 0.0}],
    "ScheduledPrior": [{"variance": 0.4}, {"variance": 0.25, "mean": 4.0}, {"variance": 0.75, "mean": 4.0}],
    "Shuffled": [{"count": 0}],
    "Uniform": [{"count": 0}],
}


@pytest.mark.parametrize("part, wrong", [(part, wrong) for part, cases in WRONG.items() for wrong in cases])
def test_fields_that_cannot_be(part, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        getattr(parts, part)(**wrong)


@pytest.mark.parametrize(
    "part, released",
    [
        (Adaptive(trial=7), Adaptive(trial=7, rule="released", test="welch", head_restarts=True)),
        (Importance(step=0.2, decrease="running"), Importance(step=0.2, rule="released")),
        (Distil(), Distil(correct_mixed=False)),
        (MomentumDistil(), MomentumDistil(views="student")),
        (StoredLogits(), StoredLogits(source="update")),
        (Refit(at="boundary"), Refit(at="boundary", frozen_norm=True)),  # RM keeps the statistics of the stream
        (Refit(at="end"), Refit(at="end")),
        (Exponential(gamma=0.5), Exponential(gamma=0.5)),
    ],
)
def test_released(part, released):
    assert part.released() == released
