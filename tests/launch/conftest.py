"""What the tests of launching share."""

from __future__ import annotations

import pytest

from iblurry.launch.config import LaunchConfig
from iblurry.launch.launch import run_all
from tests.experiment.small import kept
from tests.launch.some import SOME


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """The journals and checkpoints of SOME, run one after the other."""
    results = run_all(SOME, LaunchConfig(out=tmp_path_factory.mktemp("alone"), jobs=1))
    return [kept(one.folder) for one in results]
