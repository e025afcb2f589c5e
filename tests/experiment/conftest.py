"""What the tests of runs share."""

from __future__ import annotations

import pytest

from iblurry.data.dataset import Dataset
from iblurry.data.load import load
from iblurry.launch.launch import run
from tests.experiment.small import DATA, METHODS, kept, small

REFITS = ("gdumb", "rm", "joint", "rm-released")


@pytest.fixture(scope="session")
def data() -> Dataset:
    return load(DATA)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, bytes]]:
    """What uninterrupted runs end with, by method."""
    out = tmp_path_factory.mktemp("whole")
    return {name: kept(run(small(name), out).folder) for name in (*METHODS, *REFITS)}
