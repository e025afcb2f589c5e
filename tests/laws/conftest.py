"""Fixtures of the laws."""

from __future__ import annotations

import dataclasses

import pytest

from iblurry.method import Method
from tests.laws.lawful import LAWFUL


@pytest.fixture(params=LAWFUL)
def lawful(request: pytest.FixtureRequest) -> Method:
    """Each method in turn, quick to adapt so that a short stream shows all of its rules."""
    chosen = LAWFUL[request.param]
    if hasattr(chosen.schedule, "trial"):
        chosen = dataclasses.replace(
            chosen, schedule=dataclasses.replace(chosen.schedule, trial=2, ignore=2, history=3)
        )
    return chosen
