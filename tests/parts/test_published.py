"""Published hyper-parameters: the defaults of each part, written out beside where they are stated."""

from __future__ import annotations

from dataclasses import fields

import pytest

from iblurry.parts import (
    AdjustedCrossEntropy,
    AsymmetricCrossEntropy,
    Averaged,
    AverageTeacher,
    BiasCorrected,
    Clip,
    CrossEntropy,
    Discriminant,
    Distil,
    Elastic,
    Interfered,
    LeastUsed,
    MomentumDistil,
    NearestMean,
    Nothing,
    Plain,
    Project,
    Refit,
    Ridge,
    RunningMean,
    ScheduledPrior,
    Shuffled,
    StoredLogits,
    Uniform,
)

FEATURES = {"of": "features", "width": 1000, "gamma": 1.0, "mirror": False}
TERMS = {
    CrossEntropy: {},
    AdjustedCrossEntropy: {"decay": 0.99, "least": 1e-4},  # ours
    AsymmetricCrossEntropy: {"stream_weight": 1.0, "memory_weight": 1.0},  # ER-ACE: a plain sum
    AverageTeacher: {  # ours
        "weight": 1.0,
        "temperature": 2.0,
        "decay": 0.999,
        "warm_up": True,
        "batch_statistics": False,
    },
    Distil: {"temperature": 2.0, "correct_mixed": True},  # BiC, section 4: T = 2
    Elastic: {"strength": 100.0, "decay": 0.5, "skip_first": True},  # i-Blurry's released EWC++
    MomentumDistil: {  # MKD: lambda = 5.5, tau = 4, alpha = 1 - decay = 0.01; equation 3
        "weight": 5.5,
        "temperature": 4.0,
        "decay": 0.99,
        "warm_up": False,
        "batch_statistics": True,
        "views": "teacher",
    },
    ScheduledPrior: {"mean": 10_000.0, "variance": 0.75, "window": 100},  # SDP: mu, c2, L
    StoredLogits: {"alpha": 0.5, "beta": 0.5, "source": "answer"},  # DER++ as in SDP's comparison
}
READOUTS = {
    Plain: {},
    Averaged: {"decay": 0.99, "warm_up": False, "of": "average", "mirror": False},  # Soutif-Cormerais et al.
    BiasCorrected: {"share": 0.1, "epochs": 256, "batch": 100, "lr": 1e-3},  # as released with i-Blurry
    Discriminant: {**FEATURES, "expand": "none", "shrinkage": None},
    NearestMean: {},
    Refit: {"at": "query", "epochs": 256, "frozen_norm": False},  # GDumb and RM: 256 epochs
    Ridge: {**FEATURES, "expand": "relu", "penalty": None},  # RanPAC: relu(x R)
    RunningMean: {**FEATURES, "expand": "none", "normalise": True},
}
REHEARSALS = {
    Nothing: {},
    Uniform: {"count": 8},  # half of i-Blurry's batch of 16
    Shuffled: {"count": 16},
    Interfered: {"count": 8, "candidates": 50},  # MIR: C = 50
    LeastUsed: {  # SAR: k = 4, T = 0.125, rate 0.001
        "count": 16,
        "horizon": 4.0,
        "temperature": 0.125,
        "similarity": "head",
        "rate": 0.001,
        "normalise": True,
    },
}
GRADIENTS = {Clip: {"norm": 10.0}, Project: {"count": 240}}  # BiC, RM: 10; A-GEM's public programs: 240
RELEASED = {
    Distil: {"correct_mixed": False},
    MomentumDistil: {"views": "student"},
    StoredLogits: {"source": "update"},
}


@pytest.mark.parametrize("table", [TERMS, READOUTS, REHEARSALS, GRADIENTS], ids=lambda t: next(iter(t)).kind)
def test_defaults(table):
    for part, wanted in table.items():
        assert {f.name: getattr(part(), f.name) for f in fields(part) if f.init} == wanted, part.__name__
        assert part().released() == part(**wanted | RELEASED.get(part, {}))
    known = {p for p in next(iter(table)).known().values() if p.__module__.startswith("iblurry.")}
    assert known == set(table)


def test_released_rm_keeps_the_statistics_of_the_stream():
    assert Refit(at="boundary").released() == Refit(at="boundary", frozen_norm=True)
    assert Refit(at="end").released() == Refit(at="end")
