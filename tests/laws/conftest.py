"""Fixtures of the laws."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iblurry.data.sources.shapes import shapes
from iblurry.method import Method
from tests.laws.lawful import LAWFUL, SAMPLES


@pytest.fixture(params=LAWFUL)
def lawful(request: pytest.FixtureRequest) -> Method:
    """Each method in turn, quick to adapt so that a short stream shows all of its rules."""
    chosen = LAWFUL[request.param]
    if hasattr(chosen.schedule, "trial"):
        chosen = dataclasses.replace(
            chosen, schedule=dataclasses.replace(chosen.schedule, trial=2, ignore=2, history=3)
        )
    return chosen


@pytest.fixture(scope="session")
def samples() -> list[tuple[np.ndarray, str]]:
    """Sixty images of five classes; the classes arrive one after the other and then mix."""
    data = shapes(classes=5, train=30, test=4, size=8, channels=1, seed=3)
    by_class = {c: list(np.flatnonzero(data.train.labels == c)) for c in range(5)}
    wanted = (
        [0] * 7 + [1, 0, 1, 1, 0, 2] + [2, 1, 0, 2, 2, 1] * 3 + [3] + [3, 0, 2, 1] * 5 + [4, 4, 0, 3, 4, 1, 2, 4, 4]
    )
    wanted = (wanted + [0, 1, 2, 3, 4] * 3)[:SAMPLES]
    return [(data.train.images[by_class[c].pop()], data.classes[c]) for c in wanted]


@pytest.fixture(scope="session")
def questions() -> np.ndarray:
    return shapes(classes=5, train=1, test=8, size=8, channels=1, seed=4).test.images
