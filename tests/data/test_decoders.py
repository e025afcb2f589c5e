"""How many processes decode, and that any order of asking is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iblurry.data.dataset import Dataset
from iblurry.data.decoders import Decoders, cores, usual_workers
from iblurry.data.prefetch import Prefetch, decoders_for
from iblurry.errors import InputError
from tests.data.lazy import COUNT, SHAPE, lazy_data


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return lazy_data(tmp_path)


def test_how_many(data, monkeypatch) -> None:
    monkeypatch.delenv("IBLURRY_DECODERS", raising=False)
    assert usual_workers() == max(1, cores() - 1)
    monkeypatch.setattr("iblurry.data.decoders.cores", lambda: 16)
    assert [usual_workers(runs=runs) for runs in (1, 2, 5, 16, 99)] == [15, 7, 2, 1, 1]
    monkeypatch.setenv("IBLURRY_DECODERS", "3")
    assert decoders_for(data.train.images).workers == 3
    monkeypatch.setenv("IBLURRY_DECODERS", "0")
    assert decoders_for(data.train.images) is None
    assert decoders_for(data.train.images, workers=2).ahead == 64
    for wrong in ({"workers": -1}, {"workers": 1, "ahead": 0}):
        with pytest.raises(InputError, match=r"least is 1|not possible"):
            decoders_for(data.train.images, **wrong)


def test_any_order_is_right(data) -> None:
    rows = np.random.default_rng(0).integers(0, COUNT, 25)
    images = np.asarray(data.train.images)
    decoders = Decoders(SHAPE, workers=2, ahead=4)
    ahead = Prefetch(data.train.images, rows, decoders)
    try:
        for at in np.random.default_rng(1).integers(0, 25, 60).tolist():
            np.testing.assert_array_equal(ahead[at], images[rows[at]])
    finally:
        decoders.close()
