"""Parts as the authors' released programs have them, and fields that no part may have."""

from __future__ import annotations

import pytest

from iblurry.errors import InputError
from iblurry.parts import (
    Adaptive,
    BiasCorrected,
    Clip,
    Constant,
    Cosine,
    Discriminant,
    Distil,
    Diverse,
    Elastic,
    Exponential,
    Importance,
    Interfered,
    MomentumDistil,
    MultiStep,
    Project,
    Refit,
    Ridge,
    ScheduledPrior,
    Shuffled,
    StoredLogits,
    Uniform,
)


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


@pytest.mark.parametrize(
    "part, wrong",
    [
        (Adaptive, {"gamma": 1}),
        (Adaptive, {"alpha": 0.6}),
        (Adaptive, {"history": 1}),
        (Adaptive, {"trial": 0}),
        (Adaptive, {"rule": "x"}),
        (Adaptive, {"test": "x"}),
        (BiasCorrected, {"share": 1.0}),
        (Clip, {"norm": 0}),
        (Constant, {"initial_lr": 0}),
        (Cosine, {"floor": 0.1}),  # above the rate at the start
        (Cosine, {"cycle": 0}),
        (Cosine, {"warm": 0}),
        (Discriminant, {"shrinkage": 0.0}),
        (Discriminant, {"shrinkage": 1.5}),
        (Discriminant, {"width": 0}),
        (Discriminant, {"of": "images"}),
        (Distil, {"temperature": 0}),
        (Diverse, {"batches": 0}),
        (Elastic, {"decay": 1}),
        (Exponential, {"gamma": 1.1}),
        (Exponential, {"per": "epoch"}),
        (Importance, {"step": 0}),
        (Importance, {"step": 2}),
        (Importance, {"rule": "own"}),
        (Importance, {"decrease": "some"}),
        (Interfered, {"count": 9, "candidates": 8}),
        (MultiStep, {"milestones": (30, 30)}),
        (MultiStep, {"milestones": (0,)}),
        (MultiStep, {"factor": 2}),
        (Project, {"count": 0}),
        (Refit, {"at": "dawn"}),
        (Refit, {"epochs": 0}),
        (Refit, {"frozen_norm": True}),  # of a fresh network
        (Ridge, {"penalty": 0.0}),
        (ScheduledPrior, {"variance": 0.4}),
        (ScheduledPrior, {"variance": 0.25, "mean": 4.0}),
        (ScheduledPrior, {"variance": 0.75, "mean": 4.0}),
        (ScheduledPrior, {"window": 0}),
        (Shuffled, {"count": 0}),
        (Uniform, {"count": 0}),
    ],
)
def test_fields_that_cannot_be(part, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        part(**wrong)
