"""Fixtures of the laws."""

from __future__ import annotations

import dataclasses

import pytest

from iblurry.methods.method import Method
from iblurry.parts import Adaptive, Diverse, Refit
from iblurry.parts.readout.closed_form import ClosedForm
from tests.laws.lawful import LAWFUL

# Every law for these in each run of the tests, one of each mechanism; for all others in the slow ones.
QUICK = ("er", "clib", "agem", "gss", "gdumb", "slda")
PARAMS = [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in LAWFUL]


@pytest.fixture(params=PARAMS)
def lawful(request: pytest.FixtureRequest) -> Method:
    """Each method in turn, quick to adapt so that a short stream shows all of its rules, and not too costly."""
    chosen = LAWFUL[request.param]
    if isinstance(chosen.admission, Diverse):
        chosen = dataclasses.replace(chosen, admission=Diverse(batches=2, size=4))
    if isinstance(chosen.readout, Refit):
        chosen = dataclasses.replace(chosen, readout=dataclasses.replace(chosen.readout, epochs=4))
    if isinstance(chosen.readout, ClosedForm):
        chosen = dataclasses.replace(chosen, readout=dataclasses.replace(chosen.readout, width=24))
    if isinstance(chosen.schedule, Adaptive):
        chosen = dataclasses.replace(
            chosen, schedule=dataclasses.replace(chosen.schedule, trial=2, ignore=2, history=3)
        )
    return chosen
